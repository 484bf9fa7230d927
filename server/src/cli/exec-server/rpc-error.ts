/** A failure as the protocol has it: JSON-RPC's codes, and -32004 for what does not exist. */
import { isCayError } from '@cay/sdk/client';
import { systemReason } from '@cay/sdk/system-error';

export class RpcError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export const invalid = (message: string) => new RpcError(-32600, message);

export function rpcError(error: unknown): { code: number; message: string } {
  if (error instanceof RpcError) return { code: error.code, message: error.message };
  const message = systemReason(error);
  if (isCayError(error, 'not_found')) return { code: -32004, message };
  if (isCayError(error, 'invalid_argument')) return { code: -32602, message };
  if (isCayError(error) && error.code !== 'internal' && error.code !== 'unavailable')
    return { code: -32600, message };
  return { code: -32603, message };
}
