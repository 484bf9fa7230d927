/**
 * The SSH host key that the server has for sandboxes: Ed25519, from a seed of 32 bytes, in the form of
 * OpenSSH.
 */
import { createPrivateKey, createPublicKey } from 'node:crypto';

export interface SshHostKey {
  readonly privateKey: string;
  /** As a line of `known_hosts` has it after the name. */
  readonly publicKey: string;
}

const PKCS8_ED25519 = Buffer.from('302e020100300506032b657004220420', 'hex');
const TYPE = 'ssh-ed25519';

export function sshHostKey(seed: Uint8Array): SshHostKey {
  const key = createPrivateKey({
    key: Buffer.concat([PKCS8_ED25519, seed]),
    format: 'der',
    type: 'pkcs8',
  });
  const spki = createPublicKey(key).export({ format: 'der', type: 'spki' });
  const point = spki.subarray(-32);
  const publicBlob = Buffer.concat([text(TYPE), text(point)]);
  const check = Buffer.from('c0ffee00', 'hex');
  const secret = Buffer.concat([check, check, publicBlob, text(Buffer.concat([seed, point])), text('cay')]);
  const padding = Buffer.from(Array.from({ length: (8 - (secret.length % 8)) % 8 }, (_, index) => index + 1));
  const blob = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    text('none'),
    text('none'),
    text(''),
    Buffer.from([0, 0, 0, 1]),
    text(publicBlob),
    text(Buffer.concat([secret, padding])),
  ]);
  const lines = blob.toString('base64').replace(/.{70}/g, '$&\n');
  return {
    privateKey: `-----BEGIN OPENSSH PRIVATE KEY-----\n${lines}\n-----END OPENSSH PRIVATE KEY-----\n`,
    publicKey: `${TYPE} ${publicBlob.toString('base64')}`,
  };
}

/** A text with its length before it. */
function text(content: string | Uint8Array): Buffer {
  const bytes = Buffer.from(content as Uint8Array);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}
