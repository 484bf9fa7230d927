import { CayError } from '@cay/sdk/protocol';

/** The `Idempotency-Key` of a request. Throws `invalid_argument` for one that cannot be a key. */
export function idempotencyKeyOf(headers: NodeJS.Dict<string | string[]>): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw new CayError('invalid_argument', 'An Idempotency-Key is 1 to 255 visible ASCII characters');
}
