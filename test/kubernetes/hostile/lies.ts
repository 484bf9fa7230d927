/** What a guest that lies says, as scripts for `lie.py`. */
import { encodeCbor, type CborMap } from '../../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, PROTOCOL, writeHeader } from '../../../server/src/guest/frame.ts';

type Step = Buffer;

function step(letter: 'S' | 'E' | 'A' | 'W', payload: Uint8Array = Buffer.alloc(0)): Step {
  const head = Buffer.alloc(5, letter);
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

export function frame(
  type: number,
  stream: number,
  payload: Uint8Array = Buffer.alloc(0),
  { channel = 0, length = payload.length } = {},
) {
  const head = Buffer.alloc(HEADER_BYTES);
  writeHeader(head, 0, { length, type, channel, stream });
  return Buffer.concat([head, payload]);
}

export const send = (...bytes: Uint8Array[]): Step => step('S', Buffer.concat(bytes));
export const sendForEver = (bytes: Uint8Array): Step => step('E', bytes);
export const waitForEver = step('W');
/** Stands for the number of the stream of the last request. */
export const STREAM = 0xeeee_eeee;
export const message = (map: CborMap) => frame(FRAME.message, STREAM, encodeCbor(map));
export const data = (bytes: Uint8Array = Buffer.alloc(32 * 1024, 'x'), stream = STREAM) =>
  frame(FRAME.data, stream, bytes, { channel: 1 });
export const end = frame(FRAME.end, STREAM);
export const helloWith = (map: CborMap) => frame(FRAME.hello, 0, encodeCbor(map));
export const hello = helloWith({ protocol: PROTOCOL, version: '0', boot: Buffer.alloc(16, 7), features: [] });
/** A stream of the guest's own: it asks to reach something outside, or what a name is. */
export const opens = (stream: number, request: CborMap) => frame(FRAME.open, stream, encodeCbor(request));
/** Says hello, and waits for a request of that operation. */
export const asked = (op: string): Step => Buffer.concat([send(hello), step('A', Buffer.from(op))]);
export const script = (...steps: Step[]): Buffer => Buffer.concat(steps);
