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
      `"${name.slice(0, 200)}" is not a name of an object: 1 to 128 of letters, digits and _ . -`,
    );
  }
}

/** Throws `invalid_argument` for what no name can begin with. */
export function requirePrefix(prefix: string): void {
  if (prefix !== '') requireObjectName(prefix);
}
