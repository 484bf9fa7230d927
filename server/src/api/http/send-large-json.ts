import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { isLargeJson, jsonPieces } from '../../lib/json-pieces.ts';
import { sendJson } from './send-json.ts';

/**
 * As `sendJson`, for answers that may be large: written piece by piece, at the reader's pace, with other
 * requests in between.
 */
export async function sendLargeJson(response: ServerResponse, value: object): Promise<Response> {
  if (!isLargeJson(value)) return sendJson(response, value);
  if (response.headersSent) return RESPONSE_ALREADY_SENT;
  response.writeHead(200, { 'Content-Type': 'application/json' });
  for (const piece of jsonPieces(value)) {
    if (response.destroyed) return RESPONSE_ALREADY_SENT;
    if (!response.write(piece)) await drained(response);
    // A reader on this machine drains at once, and without an end of this turn.
    await nextTurn();
  }
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
