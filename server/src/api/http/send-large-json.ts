import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { JsonList, isLargeJson, jsonPieces } from '../../lib/json-pieces.ts';
import { nextSlice } from '../../lib/slices.ts';
import { sendJson } from './send-json.ts';

const SMALL_CHARACTERS = 1024;

/**
 * As `sendJson`, for answers that may be large: written piece by piece, at the reader's pace, with other
 * requests in between. Those of one owner, a project, wait for each other.
 */
export async function sendLargeJson(
  response: ServerResponse,
  value: object,
  owner: string,
): Promise<Response> {
  if (!isLargeJson(value)) return sendJson(response, value);
  if (response.headersSent) return RESPONSE_ALREADY_SENT;
  response.writeHead(200, { 'Content-Type': 'application/json' });
  for (const piece of jsonPieces(value)) {
    if (response.destroyed) return RESPONSE_ALREADY_SENT;
    if (!response.write(piece)) await drained(response);
    // A bracket or a key is no work.
    if (piece.length > SMALL_CHARACTERS) await nextSlice(owner);
  }
  // Now all of it has gone to the kernel. What is not written to the end is found by the garbage collector.
  response.once('finish', () => {
    for (const part of Object.values(value)) if (part instanceof JsonList) part.free();
  });
  response.end();
  return RESPONSE_ALREADY_SENT;
}

async function drained(response: ServerResponse): Promise<void> {
  if (response.destroyed) return;
  const over = new AbortController();
  try {
    await Promise.race([once(response, 'drain', over), once(response, 'close', over)]);
  } finally {
    over.abort();
  }
}
