import type { Buffer } from 'node:buffer';
import type { CommandEnd } from '@cay/sdk/protocol';
import { BoundedBytes } from '../lib/bounded-bytes.ts';
import type { CommandHandle } from './guest.ts';

export interface Collected<Bytes = Buffer> {
  /** For a command on a terminal: all its output. */
  stdout: Bytes;
  stderr: Bytes;
  end: CommandEnd;
  /** Output beyond `maxBytes` was discarded, or the guest had dropped some. */
  truncated: boolean;
}

export interface CollectOptions {
  maxBytes: number;
  /** Asked for each chunk; output that it refuses is discarded. */
  mayHold?(bytes: number): boolean;
}

/** Reads a command to its end and keeps the first `maxBytes` of its output, both channels together. */
export async function collect(handle: CommandHandle, options: CollectOptions): Promise<Collected> {
  const { stdout, stderr, ...rest } = await collectOutput(handle, options);
  return { stdout: stdout.whole(), stderr: stderr.whole(), ...rest };
}

/** The same without joining the blocks, which takes long for a large output. */
export async function collectOutput(
  handle: CommandHandle,
  options: CollectOptions,
): Promise<Collected<BoundedBytes>> {
  const kept = { stdout: new BoundedBytes(options.maxBytes), stderr: new BoundedBytes(options.maxBytes) };
  let left = options.maxBytes;
  let truncated = false;
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap' || chunk.data.length > left) truncated = true;
    if (chunk.channel === 'gap' || left === 0) continue;
    if (options.mayHold?.(Math.min(chunk.data.length, left)) === false) {
      truncated = true;
      left = 0;
      continue;
    }
    left -= kept[chunk.channel === 'stderr' ? 'stderr' : 'stdout'].add(chunk.data.subarray(0, left));
  }
  return { ...kept, end: await handle.ended, truncated };
}
