/**
 * Access tokens of sandboxes, as E2B has them. A token comes with the answer to a caller that has an API key.
 * It is derived from a secret of this installation, so it is not stored, and it says nothing about the key.
 * It has the id of the sandbox in it, because some clients send the token and no id.
 */
import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import type { SandboxId } from '@cay/sdk/protocol';
import { inEpoch } from '../../control/tenants/token-epochs.ts';
import { parseE2bId, toE2bId } from './sandbox-id.ts';

export interface AccessTokens {
  /** For commands and files. */
  envd(id: SandboxId): string;
  /** For ports that are not public. */
  traffic(id: SandboxId): string;
  isEnvd(id: SandboxId, token: string | undefined): boolean;
  isTraffic(id: SandboxId, token: string | undefined): boolean;
  /** The sandbox that a token names. The token is not checked. */
  claimed(token: string): SandboxId | undefined;
  /** Whether the signature was made with the sandbox's token. */
  isSignature(id: SandboxId, signed: SignedFile, signature: string): boolean;
}

export interface SignedFile {
  /** The path as it is in the address, before it is resolved. */
  path: string;
  operation: 'read' | 'write';
  /** Empty for the default user. */
  user: string;
  /** In seconds since 1970. */
  expiration?: number;
}

/** `epochOf` gives how often the tokens of a sandbox were revoked. */
export function accessTokens(secret: Uint8Array, epochOf: (id: SandboxId) => number = () => 0): AccessTokens {
  const mac = (purpose: string, id: SandboxId) =>
    createHmac('sha256', secret)
      .update(inEpoch(`${purpose}:${id}`, epochOf(id)))
      .digest('hex');
  const token = (purpose: string, id: SandboxId) => `${toE2bId(id)}_${mac(purpose, id)}`;
  return {
    envd: (id) => token('envd', id),
    traffic: (id) => token('traffic', id),
    isEnvd: (id, given) => given !== undefined && same(token('envd', id), given),
    isTraffic: (id, given) => given !== undefined && same(token('traffic', id), given),
    claimed: (given) => parseE2bId(given.split('_', 1)[0]!),
    isSignature: (id, signed, signature) => same(signatureOf(token('envd', id), signed), signature),
  };
}

/** The file and signature that a request names; undefined if it has no signature. */
export function signedFileOf(
  method: string | undefined,
  { pathname, searchParams }: URL,
): { file: SignedFile; signature: string } | undefined {
  const signature = searchParams.get('signature');
  if (pathname !== '/files' || signature === null || signature.length > 200) return undefined;
  const expiration = searchParams.get('signature_expiration');
  const file: SignedFile = {
    path: searchParams.get('path') ?? '',
    operation: method === 'POST' ? 'write' : 'read',
    user: searchParams.get('username') ?? '',
    ...(expiration !== null && { expiration: Number(expiration) }),
  };
  return { file, signature };
}

export function signatureOf(token: string, { path, operation, user, expiration }: SignedFile): string {
  const signed = [path, operation, user, token, ...(expiration === undefined ? [] : [expiration])].join(':');
  return `v1_${hash('sha256', signed, 'base64').replace(/=+$/, '')}`;
}

/** Compares in constant time. */
export function same(expected: string, given: string): boolean {
  const a = Buffer.from(expected);
  const b = Buffer.from(given);
  return a.length === b.length && timingSafeEqual(a, b);
}
