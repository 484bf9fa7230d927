/**
 * Encrypts text and bytes: AES-256-GCM with a random nonce. A sealed value names its key and is bound to one
 * context: in another place it does not open.
 *     sealed:1:<key id>:<nonce, ciphertext and tag in base64url>
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto';

export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const PREFIX = 'sealed:1:';

export interface SealedBox {
  /** Identifies a key without revealing it. */
  readonly keyId: string;
  seal(content: string | Uint8Array, context: string): string;
  /** Throws if it was sealed with another key or for another context, or was changed. */
  open(sealed: string, context: string): Buffer;
  /** A key for another purpose, from which this one cannot be computed. */
  derive(purpose: string): Buffer;
  /** Deterministic for the same text; useless for guessing the text without the key. */
  digest(text: string): string;
}

export function sealedBox(key: Uint8Array): SealedBox {
  if (key.length !== KEY_BYTES) throw new RangeError(`A key has ${KEY_BYTES} bytes, not ${key.length}`);
  const keyId = createHmac('sha256', key).update('key id').digest('hex').slice(0, 12);
  return {
    keyId,
    seal(content, context) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context));
      const sealed = Buffer.concat([nonce, cipher.update(content), cipher.final(), cipher.getAuthTag()]);
      return `${PREFIX}${keyId}:${sealed.toString('base64url')}`;
    },
    derive: (purpose) => createHmac('sha256', key).update(`derive ${purpose}`).digest(),
    digest: (text) => createHmac('sha256', key).update(`digest ${text}`).digest('hex'),
    open(sealed, context) {
      const by = keyIdOf(sealed);
      if (by !== keyId) throw new Error(`It was sealed with key ${by}, and this is key ${keyId}`);
      const bytes = Buffer.from(sealed.slice(PREFIX.length + keyId.length + 1), 'base64url');
      const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      });
      decipher.setAAD(Buffer.from(context)).setAuthTag(bytes.subarray(-TAG_BYTES));
      return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]);
    },
  };
}

export function isSealed(value: unknown): value is string {
  return typeof value === 'string' && value.startsWith(PREFIX);
}

/** The id of the key that something was sealed with. */
export function keyIdOf(sealed: string): string {
  return sealed.slice(PREFIX.length).split(':', 1)[0]!;
}
