import { CayError } from '@cay/sdk/protocol';
import { accessSync, constants } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The absolute path of the guest's program. Throws `failed_precondition` if it was not built. */
export function guestBinary(): string {
  const path = fileURLToPath(new URL('../../../guest/target/release/cay-guest', import.meta.url));
  try {
    accessSync(path, constants.X_OK);
  } catch (cause) {
    throw new CayError('failed_precondition', `The guest's program is missing: "${path}"`, {
      cause,
      hint: 'npm run guest',
    });
  }
  return path;
}
