/**
 * Placement: on which platform each sandbox and snapshot is.
 *
 * A server has one backend, or several as named platforms. Only this module asks which: everything
 * else in the control plane uses these functions, and a single backend is the one platform that there is. The
 * record of a sandbox says its platform by `platformOf`; the composite backend is given that when the server
 * starts, and finds out the rest by asking.
 *
 * A platform that does not answer says nothing about its sandboxes: they are neither gone nor failed, and
 * stay as they are recorded until it answers.
 */
import {
  CayError,
  type Capabilities,
  type SandboxId,
  type SandboxSpec,
  type SnapshotId,
} from '@cay/sdk/protocol';
import { isAway, type Backend } from '../../backends/backend.ts';
import { withTimeout } from '../../lib/timeout.ts';

/** A platform that hangs must not keep the server from starting. */
const ANSWER_MS = 30_000;

/** What a record says about where it is. */
export interface Placed {
  /** Its `platform` is set where the server had several. */
  spec: SandboxSpec;
  /** The backend or platform that the sandbox was made on; snapshots have it in their spec alone. */
  backend?: string;
}

export interface Found<T> {
  it: T;
  /** The backend that has it. */
  platform: Backend;
}

export interface Survey<T> {
  found: Found<T>[];
  /** Whether a record of this platform that was not found may still exist, because the platform is away. */
  unsure(platform: string | undefined): boolean;
}

/**
 * The platform for a new sandbox; undefined where there is only one. Throws `not_found` for an unknown name.
 */
export function choosePlatform(
  backend: Backend,
  wish: { platform?: string; labels: Readonly<Record<string, string>> },
): string | undefined {
  const platforms = backend.ability('platforms');
  if (platforms) return platforms.choose(wish);
  if (wish.platform === undefined || wish.platform === backend.name) return undefined;
  throw new CayError('not_found', `Platform "${wish.platform}" is unknown`, {
    details: { what: 'platform' },
    hint: `this server has "${backend.name}" alone`,
  });
}

/** The platform that a record is on; undefined where there is only one. */
export function platformOf({ spec, backend: made }: Placed, backend: Backend): string | undefined {
  const platforms = backend.ability('platforms');
  if (!platforms) return undefined;
  return spec.platform ?? platforms.names.find((name) => name === made);
}

/** Tells a composite backend where the recorded sandboxes and snapshots are: their platforms may be away. */
export function rememberPlacements(
  backend: Backend,
  rows: Iterable<Placed & { id: SandboxId | SnapshotId }>,
): void {
  const platforms = backend.ability('platforms');
  if (!platforms) return;
  for (const row of rows) {
    const platform = platformOf(row, backend);
    if (platform !== undefined) platforms.place(row.id, platform);
  }
}

export function hasPlatforms(backend: Backend): boolean {
  return backend.ability('platforms') !== undefined;
}

/** Every platform by name, the default first. Opening one rejects `unavailable` while it is away. */
export function platformsOf(backend: Backend): { name: string; open(): Promise<Backend> }[] {
  const platforms = backend.ability('platforms');
  if (!platforms) return [{ name: backend.name, open: async () => backend }];
  return platforms.names.map((name) => ({ name, open: () => platforms.get(name) }));
}

/** Whether the capacity of this platform is part of what the backend reports. */
export function isMeasured(backend: Backend, platform: string | undefined): boolean {
  const platforms = backend.ability('platforms');
  return platform === undefined || !platforms || platforms.measures(platform);
}

/** Asks each platform for its capabilities once: the answer may be slow, and every create needs it. */
export function platformCapabilities(
  backend: Backend,
  own: Capabilities,
): (platform: string | undefined) => Promise<Capabilities> {
  const known = new Map<string, Capabilities>();
  return async (platform) => {
    const platforms = backend.ability('platforms');
    if (platform === undefined || !platforms) return own;
    const capabilities = known.get(platform) ?? (await (await platforms.get(platform)).capabilities());
    known.set(platform, capabilities);
    return capabilities;
  };
}

/** Whether a record is on this platform, or may be: not every record says where it is. */
export function isOn(backend: Backend, row: Placed, platform: Backend): boolean {
  const name = platformOf(row, backend);
  return name === undefined || backend.ability('platforms')?.nameOf(platform) === name;
}

/** What was found where its record says or without a record, and what was found elsewhere. */
export function split<T extends { id: string }>(
  backend: Backend,
  found: readonly Found<T>[],
  rows: readonly (Placed & { id: string })[],
): { placed: Found<T>[]; misplaced: Found<T>[] } {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const { placed = [], misplaced = [] } = Object.groupBy(found, ({ it, platform }) => {
    const row = byId.get(it.id);
    return row && !isOn(backend, row, platform) ? 'misplaced' : 'placed';
  });
  return { placed, misplaced };
}

/** Asks every platform. With a single backend it rejects as that does. */
export async function survey<T>(
  backend: Backend,
  look: (platform: Backend) => Promise<T[]>,
): Promise<Survey<T>> {
  if (!hasPlatforms(backend))
    return { found: (await look(backend)).map((it) => ({ it, platform: backend })), unsure: () => false };
  const platforms = platformsOf(backend);
  const answered = new Set<string>();
  const found = await Promise.all(
    platforms.map(async ({ name, open }) => {
      try {
        const platform = await open();
        const late = () =>
          new CayError('unavailable', `Platform "${name}" has not answered for ${ANSWER_MS / 1000} s`);
        const all = (await withTimeout(look(platform), ANSWER_MS, late)).map((it) => ({ it, platform }));
        answered.add(name);
        return all;
      } catch (error) {
        if (!isAway(error)) throw error;
        return [];
      }
    }),
  );
  return {
    found: found.flat(),
    unsure: (platform) =>
      platform === undefined ? answered.size < platforms.length : !answered.has(platform),
  };
}
