import { Buffer } from 'node:buffer';
import type { CommandEnd } from '@cay/sdk/protocol';
import { compact } from './frame-parser.ts';
import type { CommandHandle } from './guest.ts';

export interface Collected {
  /** Of a command on a terminal: all its output. */
  stdout: Buffer;
  stderr: Buffer;
  end: CommandEnd;
  /** Output beyond `maxBytes` was thrown away, or some had been dropped before. */
  truncated: boolean;
}

/** Reads a command to its end and keeps the first `maxBytes` of its output, both channels together. */
export async function collect(handle: CommandHandle, options: { maxBytes: number }): Promise<Collected> {
  const kept = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  let left = options.maxBytes;
  let truncated = false;
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap' || chunk.data.length > left) truncated = true;
    if (chunk.channel === 'gap' || left === 0) continue;
    const { buffer, byteOffset, length } = chunk.data;
    const data = Buffer.from(buffer, byteOffset, Math.min(length, left));
    left -= data.length;
    kept[chunk.channel === 'stderr' ? 'stderr' : 'stdout'].push(compact(data));
  }
  return { stdout: Buffer.concat(kept.stdout), stderr: Buffer.concat(kept.stderr), end: await handle.ended, truncated };
}
