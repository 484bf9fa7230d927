/**
 * The chain that events form: each has a hash over the one before it and over itself, so that none can be
 * changed, removed, inserted or moved without every later hash being wrong.
 *
 *     hash = SHA-256( previous hash in hex ‖ JSON [id, at, type, project, sandbox, key, outcome, data] )
 *
 * `data` is the JSON text as it is stored. The first event follows 32 zero bytes. What was pruned is stood
 * for by an anchor: the id and the hash of the last event that went. What was pruned in between, of one
 * project alone, is stood for by a gap: see `gaps.ts`.
 *
 * Whoever can write the file could compute all hashes anew. So every so often a checkpoint says with a key of
 * the installation what the hash was; without that key it cannot be said again. What comes after the last
 * checkpoint is proven by a hash that was noted elsewhere.
 */
import { createHmac, hash, timingSafeEqual } from 'node:crypto';

export interface StoredEvent {
  id: number;
  at: number;
  type: string;
  project: string | null;
  sandbox: string | null;
  key: string | null;
  outcome: string;
  data: string;
  hash: Uint8Array;
}

/** A place in the chain. */
export interface Link {
  id: number;
  hash: Uint8Array;
}

export const GENESIS: Link = { id: 0, hash: new Uint8Array(32) };
/** Events with these ids always have a checkpoint. */
export const CHECKPOINT_EVERY = 1000;

export function chainHash(previous: Uint8Array, event: Omit<StoredEvent, 'hash'>): Uint8Array {
  const { id, at, type, project, sandbox, key, outcome, data } = event;
  return hash(
    'sha256',
    hex(previous) + JSON.stringify([id, at, type, project, sandbox, key, outcome, data]),
    'buffer',
  );
}

/** What only the holder of the key can say about a place in the chain. */
export function sealOf(key: Uint8Array, kind: 'checkpoint' | 'anchor', link: Link): Uint8Array {
  return createHmac('sha256', key)
    .update(`${kind}\n${link.id}\n${hex(link.hash)}`)
    .digest();
}

/**
 * The same about a stretch of it that was pruned: it begins with `first`, behind an event with this hash, and
 * ends with `last`.
 */
export function gapSeal(key: Uint8Array, first: number, previous: Uint8Array, last: Link): Uint8Array {
  return createHmac('sha256', key)
    .update(`gap\n${first}\n${hex(previous)}\n${last.id}\n${hex(last.hash)}`)
    .digest();
}

export function sameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}

export function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}
