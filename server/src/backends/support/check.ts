/** Checks that every backend makes first, whatever its caller has checked already. */
import {
  CayError,
  SandboxIdSchema,
  SandboxSpecSchema,
  SnapshotIdSchema,
  SomeLimitsSchema,
  VolumeIdSchema,
  type Limits,
  type SandboxSpec,
} from '@cay/sdk/protocol';
import { isDeepStrictEqual } from 'node:util';
import type { ZodType } from 'zod';

/** Rejects `invalid_argument` for what could not be a directory's, a cgroup's or a container's name. */
export function requireSandboxId(id: string): void {
  if (SandboxIdSchema.safeParse(id).success) return;
  throw new CayError(
    'invalid_argument',
    `${JSON.stringify(String(id).slice(0, 64))} is not a sandbox id: must be "sbx_" and 20 characters of a-z and 0-9`,
  );
}

/** Of a verb that is about both. */
export function requireIds(sandbox: string, snapshot: string): void {
  requireSandboxId(sandbox);
  requireSnapshotId(snapshot);
}

export function requireSnapshotId(id: string): void {
  if (SnapshotIdSchema.safeParse(id).success) return;
  throw new CayError(
    'invalid_argument',
    `${JSON.stringify(String(id).slice(0, 64))} is not a snapshot id: must be "snap_" and 20 characters of a-z and 0-9`,
  );
}

export function requireVolumeId(id: string): void {
  if (VolumeIdSchema.safeParse(id).success) return;
  throw new CayError(
    'invalid_argument',
    `${JSON.stringify(String(id).slice(0, 64))} is not a volume id: must be "vol_" and 20 characters of a-z and 0-9`,
  );
}

export function requireSpec(spec: SandboxSpec): void {
  require('spec', SandboxSpecSchema, spec);
}

export function requireLimits(limits: Partial<Limits>): void {
  require('limits', SomeLimitsSchema, limits);
}

function require(what: string, schema: ZodType, value: unknown): void {
  const issue = schema.safeParse(value).error?.issues[0];
  if (issue)
    throw new CayError(
      'invalid_argument',
      `Invalid ${what}: "${issue.path.join('.') || what}" ${issue.message}`,
      {
        details: { path: issue.path },
      },
    );
}

/**
 * Whether two specs make the same sandbox. Limits are left out, since they change while it lives, and so is
 * the platform: it is this one.
 */
export function sameSpec(one: SandboxSpec, other: SandboxSpec): boolean {
  return isDeepStrictEqual(
    { ...one, limits: null, platform: null },
    { ...other, limits: null, platform: null },
  );
}

/**
 * Rejects `cancelled` once the caller has given up. Called between steps; the verb then undoes what it began,
 * as after any failure.
 */
export function requireWanted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw givenUp(signal);
}

export function givenUp({ reason }: AbortSignal): CayError {
  return new CayError('cancelled', 'The caller has given up', { cause: reason });
}
