import { StringDecoder } from 'node:string_decoder';
import { shellExitCode, type ExecEvent, type OutputChannel, type OutputEncoding } from '@cay/sdk/protocol';
import type { CommandHandle } from '../../guest/guest.ts';

interface Channel {
  decoder: StringDecoder;
  /** Offset of the first byte of an incomplete character; undefined if there is none. */
  heldFrom: number | undefined;
}

export interface OutputOptions {
  /** Offset at which the handle begins. Default 0. */
  from?: number;
  /** Stops at this offset, without the event `end`. */
  upTo?: number | undefined;
  /** Stops after this number of bytes, without the event `end`. */
  limitBytes?: number | undefined;
}

/**
 * Converts a command's output to events, up to its end.
 *
 * Text is decoded for each channel by itself. A character whose bytes arrive in two chunks belongs to one
 * event, with the offset of its first byte. Bytes that are not UTF-8 become U+FFFD; clients that need them
 * ask for `base64`.
 */
export async function* outputEvents(
  handle: CommandHandle,
  encoding: OutputEncoding,
  options: OutputOptions = {},
): AsyncGenerator<ExecEvent> {
  const upTo = options.upTo ?? Infinity;
  let left = options.limitBytes ?? Infinity;
  const channels = new Map<OutputChannel, Channel>();
  yield { type: 'started', id: handle.id, pid: handle.pid, existing: handle.existing };
  if (upTo <= (options.from ?? 0) || left === 0) return;
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap') {
      yield* flush(channels);
      yield { type: 'gap', offset: chunk.offset, bytes: chunk.bytes };
    } else if (chunk.offset < upTo) {
      const data = Buffer.from(
        chunk.data.buffer,
        chunk.data.byteOffset,
        Math.min(chunk.data.byteLength, upTo - chunk.offset, left),
      );
      left -= data.length;
      if (encoding === 'base64')
        yield { type: chunk.channel, offset: chunk.offset, data: data.toString('base64') };
      else {
        const event = decode(channels, chunk.channel, chunk.offset, data);
        if (event) yield event;
      }
    }
    const next = chunk.offset + (chunk.channel === 'gap' ? chunk.bytes : chunk.data.byteLength);
    if (next >= upTo || left === 0) {
      yield* flush(channels);
      return;
    }
  }
  yield* flush(channels);
  const end = await handle.ended;
  yield { type: 'end', end, exitCode: shellExitCode(end) };
}

function decode(
  channels: Map<OutputChannel, Channel>,
  type: OutputChannel,
  offset: number,
  data: Buffer,
): ExecEvent | undefined {
  let channel = channels.get(type);
  if (!channel) channels.set(type, (channel = { decoder: new StringDecoder('utf8'), heldFrom: undefined }));
  const from = channel.heldFrom ?? offset;
  const text = channel.decoder.write(data);
  const held = heldBytes(channel.decoder);
  if (held === 0) channel.heldFrom = undefined;
  else if (text !== '' || channel.heldFrom === undefined)
    channel.heldFrom = offset + data.length - Math.min(held, data.length);
  return text === '' ? undefined : { type, offset: from, data: text };
}

/** Incomplete characters at the end of the output. */
function* flush(channels: Map<OutputChannel, Channel>): Generator<ExecEvent> {
  for (const [type, channel] of channels) {
    const text = channel.decoder.end();
    if (text !== '') yield { type, offset: channel.heldFrom ?? 0, data: text };
    channel.heldFrom = undefined;
  }
}

function heldBytes(decoder: StringDecoder): number {
  // Fields of Node that its types lack: the length of the last character, and how many of its bytes are
  // missing.
  const { lastTotal, lastNeed } = decoder as unknown as { lastTotal: number; lastNeed: number };
  return lastNeed > 0 ? lastTotal - lastNeed : 0;
}
