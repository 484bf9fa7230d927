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
  envd(id: SandboxId): Promise<string>;
  /** For ports that are not public. */
  traffic(id: SandboxId): Promise<string>;
  isEnvd(id: SandboxId, token: string | undefined): Promise<boolean>;
  isTraffic(id: SandboxId, token: string | undefined): Promise<boolean>;
  /** The sandbox that a token names. The token is not checked. */
  claimed(token: string): SandboxId | undefined;
  /** Whether the signature was made with the sandbox's token. */
  isSignature(id: SandboxId, signed: SignedFile, signature: string): Promise<boolean>;
  /** Whether it was made with the token that the sandbox has in an epoch, for who looks at many. */
  isSignatureIn(epoch: number, id: SandboxId, signed: SignedFile, signature: string): boolean;
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

/** `epochOf` resolves how often the tokens of a sandbox were revoked. */
export function accessTokens(
  secret: Uint8Array,
  epochOf: (id: SandboxId) => Promise<number> = async () => 0,
): AccessTokens {
  const tokenIn = (epoch: number, purpose: string, id: SandboxId) => {
    const mac = createHmac('sha256', secret)
      .update(inEpoch(`${purpose}:${id}`, epoch))
      .digest('hex');
    return `${toE2bId(id)}_${mac}`;
  };
  const token = async (purpose: string, id: SandboxId) => tokenIn(await epochOf(id), purpose, id);
  return {
    envd: (id) => token('envd', id),
    traffic: (id) => token('traffic', id),
    isEnvd: async (id, given) => given !== undefined && same(await token('envd', id), given),
    isTraffic: async (id, given) => given !== undefined && same(await token('traffic', id), given),
    claimed: (given) => parseE2bId(given.split('_', 1)[0]!),
    isSignature: async (id, signed, signature) =>
      same(signatureOf(await token('envd', id), signed), signature),
    isSignatureIn: (epoch, id, signed, signature) =>
      same(signatureOf(tokenIn(epoch, 'envd', id), signed), signature),
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
