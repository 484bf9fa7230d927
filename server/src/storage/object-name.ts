/** The name rule of `store.ts`, shared by all drivers. */
import { CayError } from '@cay/sdk/protocol';

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

export function isObjectName(name: string): boolean {
  return NAME.test(name);
}

/** Throws `invalid_argument`. */
export function requireObjectName(name: string): void {
  if (!isObjectName(name)) {
    throw new CayError(
      'invalid_argument',
      `Invalid object name "${name.slice(0, 200)}": use 1 to 128 of A-Z a-z 0-9 _ . -`,
    );
  }
}

/** Throws `invalid_argument` if no object name can start with `prefix`. */
export function requirePrefix(prefix: string): void {
  if (prefix !== '') requireObjectName(prefix);
}
