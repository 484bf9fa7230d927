import { CHECKPOINT_EVERY, chainHash, sameBytes, sealOf, type Link, type StoredEvent } from './chain.ts';

export interface Checkpoint extends Link {
  seal: Uint8Array;
}

/**
 * The fault of an event that follows this position, if it has one. Without the key seals are not verified.
 */
export function faultOf(
  row: StoredEvent,
  previous: Link,
  checkpoint: Checkpoint | undefined,
  key: Uint8Array | undefined,
): string | undefined {
  if (row.id !== previous.id + 1) return 'the event is missing';
  if (!sameBytes(row.hash, chainHash(previous.hash, row)))
    return 'the event is not the one that was recorded here';
  if (!checkpoint)
    return row.id % CHECKPOINT_EVERY === 0 ? 'the checkpoint of the event is missing' : undefined;
  if (!sameBytes(checkpoint.hash, row.hash))
    return 'the events up to here are not those that the checkpoint was made of';
  if (key && !sameBytes(checkpoint.seal, sealOf(key, 'checkpoint', row)))
    return 'the checkpoint of the event was not written by this installation';
  return undefined;
}
