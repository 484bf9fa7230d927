import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { JsonList, isLargeJson, jsonPieces } from '../../lib/json-pieces.ts';
import { nextSlice } from '../../lib/slices.ts';
import { drained } from '../../lib/drained.ts';
import { sendJson } from './send-json.ts';
import type { Settled } from './settled.ts';

const SMALL_CHARACTERS = 1024;

/**
 * Sends JSON that may be large: in pieces, at the speed of the reader, with other requests in between.
 * Answers of one owner, which is a project, wait for each other.
 */
export async function sendLargeJson<T extends object>(
  response: ServerResponse,
  value: T & Settled<T>,
  owner: string,
): Promise<Response> {
  if (!isLargeJson(value)) return sendJson<T>(response, value);
  if (response.headersSent) return RESPONSE_ALREADY_SENT;
  response.writeHead(200, { 'Content-Type': 'application/json' });
  for (const piece of jsonPieces(value)) {
    if (response.destroyed) return RESPONSE_ALREADY_SENT;
    if (!response.write(piece)) await drained(response);
    // Brackets and keys take no time worth yielding for.
    if (piece.length > SMALL_CHARACTERS) await nextSlice(owner);
  }
  // All of it is with the kernel now. A value that is not written to the end is left to the garbage
  // collector.
  response.once('finish', () => {
    for (const part of Object.values(value)) if (part instanceof JsonList) part.free();
  });
  response.end();
  return RESPONSE_ALREADY_SENT;
}
