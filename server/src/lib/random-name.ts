import { randomBytes } from 'node:crypto';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** Characters of `[a-z0-9]`, each equally likely. */
export function randomName(length: number): string {
  let name = '';
  while (name.length < length) {
    for (const byte of randomBytes(length)) {
      // 252 is the largest multiple of 36 in a byte: beyond it some characters would come more often.
      if (byte < 252 && name.length < length) name += ALPHABET[byte % 36];
    }
  }
  return name;
}
