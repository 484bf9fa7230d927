import type { ServerResponse } from 'node:http';
import type { SandboxId } from '@cay/sdk/protocol';
import { sendJson } from '../http/send-json.ts';
import { traceOf } from '../http/trace.ts';
import { toE2bId } from './sandbox-id.ts';

export const NOT_FOUND = 'The sandbox was not found';

/**
 * The answer by which clients know that a sandbox does not run. They distinguish it from a closed port by the
 * message.
 */
export function notRunning(
  response: ServerResponse,
  id?: SandboxId,
  why: { message?: string; port?: number } = {},
): void {
  traceOf(response).expected = true;
  sendJson(response, { ...(id && { sandboxId: toE2bId(id) }), message: NOT_FOUND, ...why, code: 502 }, 502);
}
