/**
 * The hash chain of events: each has a hash over the one before it and over itself, so that none can be
 * changed, removed, inserted or moved without making every later hash wrong.
 *
 *     hash = SHA-256( previous hash in hex ‖ JSON [id, at, type, project, sandbox, key, outcome, data] )
 *
 * `data` is the JSON text as it is stored. The first event follows 32 zero bytes. An anchor replaces the
 * oldest events that were pruned: it has the id and the hash of the last of them. A gap replaces events of
 * one project that were pruned in between: see `gaps.ts`.
 *
 * An attacker who can write the file could compute all hashes again. So at intervals a checkpoint seals a
 * hash with a key of the installation, which cannot be forged without the key. Events after the last
 * checkpoint are proven by a hash that was stored elsewhere.
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
/** Events with these ids always get a checkpoint. */
export const CHECKPOINT_EVERY = 1000;

export function chainHash(previous: Uint8Array, event: Omit<StoredEvent, 'hash'>): Uint8Array {
  const { id, at, type, project, sandbox, key, outcome, data } = event;
  return hash(
    'sha256',
    hex(previous) + JSON.stringify([id, at, type, project, sandbox, key, outcome, data]),
    'buffer',
  );
}

/** The seal of a position in the chain, made with the key. */
export function sealOf(key: Uint8Array, kind: 'checkpoint' | 'anchor', link: Link): Uint8Array {
  return createHmac('sha256', key)
    .update(`${kind}\n${link.id}\n${hex(link.hash)}`)
    .digest();
}

/** The seal of a pruned gap: it begins with `first`, after an event with this hash, and ends with `last`. */
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
