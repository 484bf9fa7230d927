/**
 * What opens a sandbox to E2B's clients: its access token, or for files an address that was signed with it.
 */
import type { IncomingMessage } from 'node:http';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { EnteredSandbox } from '../../../control/control.ts';
import { signedFileOf, type AccessTokens } from '../access-tokens.ts';

/** Called for requests without a valid token or signature. */
export type Refused = (
  request: IncomingMessage,
  error: CayError,
  sandbox?: Pick<EnteredSandbox, 'id' | 'project'>,
) => void;

export interface EnvdCredentials {
  /** Whether the request has a valid token or signature of this sandbox. What it may do is checked later. */
  isOpenedBy(id: SandboxId, request: IncomingMessage, url: URL): Promise<boolean>;
  /** Rejects `unauthenticated` without the access token of the sandbox. */
  requireToken(row: EnteredSandbox, request: IncomingMessage): Promise<void>;
  /** Rejects `unauthenticated` without the access token or a signature of this file and operation. */
  requireSigned(
    row: EnteredSandbox,
    request: IncomingMessage,
    operation: 'read' | 'write',
    query: FilesQuery,
  ): Promise<void>;
}

const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

export const FilesQuery = z.object({
  path: z.string().max(4096).optional(),
  username: z.string().max(64).optional(),
  signature: z.string().max(200).optional(),
  signature_expiration: z
    .string()
    .regex(/^\d{1,12}$/)
    .transform(Number)
    .optional(),
});
export type FilesQuery = z.infer<typeof FilesQuery>;

export function envdCredentials({
  tokens,
  onRefused,
}: {
  tokens: AccessTokens;
  onRefused: Refused;
}): EnvdCredentials {
  function refused(row: EnteredSandbox, request: IncomingMessage, message: string): CayError {
    const error = new CayError('unauthenticated', message);
    onRefused(request, error, row);
    return error;
  }

  async function requireToken(row: EnteredSandbox, request: IncomingMessage): Promise<void> {
    const given = request.headers['x-access-token'];
    if (!(await tokens.isEnvd(row.id, typeof given === 'string' ? given : undefined)))
      throw refused(row, request, UNAUTHORIZED);
  }

  async function isOpenedBy(id: SandboxId, request: IncomingMessage, url: URL): Promise<boolean> {
    const token = request.headers['x-access-token'];
    if (token !== undefined) return typeof token === 'string' && tokens.isEnvd(id, token);
    const signed = signedFileOf(request.method, url);
    return signed !== undefined && tokens.isSignature(id, signed.file, signed.signature);
  }

  async function requireSigned(
    row: EnteredSandbox,
    request: IncomingMessage,
    operation: 'read' | 'write',
    { path = '', username: user = '', signature, signature_expiration: expiration }: FilesQuery,
  ): Promise<void> {
    if (request.headers['x-access-token'] !== undefined) return requireToken(row, request);
    if (signature === undefined) throw refused(row, request, 'missing signature query parameter');
    if (
      !(await tokens.isSignature(
        row.id,
        { path, operation, user, ...(expiration !== undefined && { expiration }) },
        signature,
      ))
    ) {
      throw refused(row, request, 'invalid signature');
    }
    if (expiration !== undefined && expiration < Date.now() / 1000)
      throw refused(row, request, 'signature is already expired');
  }

  return { isOpenedBy, requireToken, requireSigned };
}
