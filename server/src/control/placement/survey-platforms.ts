/**
 * Where sandboxes and snapshots are: the backend, or each of the platforms behind it.
 *
 * A platform that does not answer says nothing of what is on it: that is neither gone nor failed, and left as
 * it is recorded until somebody can tell.
 */
import { CayError, type SandboxSpec } from '@cay/sdk/protocol';
import { canRoute, isAway, type Backend } from '../../backends/backend.ts';
import { withTimeout } from '../../lib/timeout.ts';

/** A platform that hangs must not keep the server from starting. */
const ANSWER_MS = 30_000;

export interface Found<T> {
  it: T;
  /** The backend that has it. */
  platform: Backend;
}

export interface Survey<T> {
  found: Found<T>[];
  /** Whether what is recorded there, and was not found, may be there all the same. */
  unsure(platform: string | undefined): boolean;
}

/** Looks at every platform. Rejects only where the one that there is does. */
export async function survey<T>(
  backend: Backend,
  look: (platform: Backend) => Promise<T[]>,
): Promise<Survey<T>> {
  if (!canRoute(backend))
    return { found: (await look(backend)).map((it) => ({ it, platform: backend })), unsure: () => false };
  const { platforms } = backend;
  const answered = new Set<string>();
  const found = await Promise.all(
    platforms.map(async (name) => {
      try {
        const platform = await backend.platform(name);
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

/** The platform that a record means; one of a time when there was a single backend says which that was. */
export function platformOf(
  row: { spec: SandboxSpec; backend?: string },
  backend: Backend,
): string | undefined {
  if (!canRoute(backend)) return undefined;
  return row.spec.platform ?? backend.platforms.find((name) => name === row.backend);
}
