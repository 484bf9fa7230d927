import { Buffer } from 'node:buffer';
import { bytesOf, type Reach } from './call.ts';
import type { CborMap } from './cbor.ts';
import type { CallOptions, ToolAnswer } from './guest.ts';
import type { StreamItem } from './stream.ts';
import { violation } from './violation.ts';

/** Of the text or image of an answer. The guest's own bound is 5 MiB. */
const MOST_DATA = 6 * 1024 * 1024;

/** Asks the guest for a tool that it answers without a process. */
export async function guestTool(
  reach: Reach,
  user: string,
  request: CborMap & { name: string },
  options?: CallOptions,
): Promise<ToolAnswer> {
  const connection = await reach(options);
  const stream = connection.open('tool', { user, ...request }, { signal: options?.signal, half: true });
  const facts = stream.check(requireFacts, await stream.read());
  const pieces: Uint8Array[] = [];
  for await (const piece of bytesOf(stream, MOST_DATA)) pieces.push(piece);
  return { facts, data: Buffer.concat(pieces) };
}

function requireFacts(item: StreamItem | undefined): CborMap {
  if (!item?.message) throw violation('the answer of a tool does not begin with a message');
  return item.message;
}
