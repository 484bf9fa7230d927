/**
 * Puts frames on a transport, all those of one tick in one write.
 *
 * Small frames are copied together; a large payload goes out as it is, between them, by `writev`, and is
 * given back if it was lent.
 */
import { Buffer } from 'node:buffer';
import type { Writable } from 'node:stream';
import { giveBack } from '../lib/lent-memory.ts';
import { HEADER_BYTES, writeHeader } from './frame.ts';

const SLAB_BYTES = 32 * 1024;
const COPY_BELOW = 4096;
/** So many bytes may wait for the end of a tick before senders have to wait. */
const BATCH_BYTES = 256 * 1024;
/** Pieces of large copies wait for the end of a turn of the loop, so that several leave together. */
const BULK_BYTES = 32 * 1024;
const BULK_BATCH_BYTES = 128 * 1024;
/** Senders of data wait for the transport, so this much means that the guest does not read answers. */
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;

export interface FrameWriter {
  readonly congested: boolean;
  send(type: number, stream: number, payload?: Uint8Array, channel?: number): void;
  onceDrained(wake: () => void): void;
  /** Writes what waits for the end of the tick. */
  flush(): void;
}

export function frameWriter(transport: Writable, onStuck: () => void): FrameWriter {
  let slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
  /** Offsets in the slab: what was handed to the transport, and what is filled. */
  let flushed = 0;
  let filled = 0;
  let batch: Uint8Array[] = [];
  let batchBytes = 0;
  let scheduled = false;
  let postponed = false;
  let draining = false;
  let waiting: (() => void)[] = [];

  const wake = () => {
    if (draining || waiting.length === 0) return;
    const woken = waiting;
    waiting = [];
    for (const one of woken) one();
  };
  transport.on('drain', () => {
    draining = false;
    wake();
  });

  const sealSlab = () => {
    if (filled > flushed) batch.push(slab.subarray(flushed, filled));
    flushed = filled;
  };

  const flush = () => {
    scheduled = false;
    sealSlab();
    if (batch.length === 0) return;
    const buffers = batch;
    batch = [];
    batchBytes = 0;
    if (transport.destroyed || transport.writableEnded) return;
    if (buffers.length > 1) transport.cork();
    for (const buffer of buffers)
      draining = !(buffer.length < COPY_BELOW
        ? transport.write(buffer)
        : transport.write(buffer, (error) => error ?? giveBack(buffer)));
    if (buffers.length > 1) transport.uncork();
    if (transport.writableLength > MAX_BACKLOG_BYTES) return onStuck();
    draining &&= transport.writableNeedDrain;
    wake();
  };

  const postpone = () => {
    if (postponed) return;
    postponed = true;
    setImmediate(() => {
      postponed = false;
      if (!scheduled) flush();
    });
  };

  return {
    get congested() {
      return draining || batchBytes >= BATCH_BYTES;
    },
    send(type, stream, payload, channel = 0) {
      const length = payload?.length ?? 0;
      const copied = HEADER_BYTES + (length < COPY_BELOW ? length : 0);
      if (filled + copied > slab.length) {
        sealSlab();
        slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
        flushed = filled = 0;
      }
      writeHeader(slab, filled, { length, type, channel, stream });
      if (payload && length > 0 && length < COPY_BELOW) slab.set(payload, filled + HEADER_BYTES);
      filled += copied;
      if (payload && length >= COPY_BELOW) {
        sealSlab();
        batch.push(payload);
      }
      batchBytes += HEADER_BYTES + length;
      if (scheduled) return;
      if (length >= BULK_BYTES && batchBytes < BULK_BATCH_BYTES) return postpone();
      scheduled = true;
      queueMicrotask(flush);
    },
    onceDrained(one) {
      waiting.push(one);
    },
    flush,
  };
}
