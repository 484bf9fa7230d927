import { z } from 'zod';

/**
 * Ids are a prefix that tells the noun and 20 characters of `[a-z0-9]`, drawn at random.
 * They name directories, cgroups and hosts, so their alphabet is small and checked at every door.
 */
export const ID_ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';
export const ID_LENGTH = 20;

export type IdPrefix = 'sbx' | 'cmd' | 'snap' | 'key' | 'prj' | 'evt' | 'whk' | 'sec' | 'vol';
export type SandboxId = `sbx_${string}`;
export type SnapshotId = `snap_${string}`;
export type VolumeId = `vol_${string}`;
export type CommandId = string;

const patterns = new Map<IdPrefix, RegExp>();

export function isId(prefix: IdPrefix, value: unknown): boolean {
  let pattern = patterns.get(prefix);
  if (!pattern) patterns.set(prefix, (pattern = new RegExp(`^${prefix}_[a-z0-9]{${ID_LENGTH}}$`)));
  return typeof value === 'string' && pattern.test(value);
}

/** Makes an id from random bytes. 36 does not divide 256, so bytes of the last partial run are redrawn. */
export function newId<P extends IdPrefix>(prefix: P): `${P}_${string}` {
  let text = '';
  while (text.length < ID_LENGTH) {
    for (const byte of crypto.getRandomValues(new Uint8Array(ID_LENGTH))) {
      if (byte < 252 && text.length < ID_LENGTH) text += ID_ALPHABET[byte % 36];
    }
  }
  return `${prefix}_${text}`;
}

export const SandboxIdSchema = z.custom<SandboxId>((value) => isId('sbx', value), {
  message: 'must be "sbx_" and 20 characters of a-z and 0-9',
});

export const SnapshotIdSchema = z.custom<SnapshotId>((value) => isId('snap', value), {
  message: 'must be "snap_" and 20 characters of a-z and 0-9',
});

export const VolumeIdSchema = z.custom<VolumeId>((value) => isId('vol', value), {
  message: 'must be "vol_" and 20 characters of a-z and 0-9',
});

/**
 * A command's id may be chosen by the caller, which makes starting it idempotent: the same id in
 * the same sandbox is the same command.
 */
export const CommandIdSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/,
    'must be 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit',
  );
