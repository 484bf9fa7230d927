import { CayError } from '@cay/sdk/protocol';
import { fileURLToPath } from 'node:url';
import { isExecutable } from '../lib/is-executable.ts';

/** In a clone where cargo builds it, and in the npm package beside the compiled sources. */
const PLACES = ['../../../guest/target/release/cay-guest', '../../guest/cay-guest'];

/** The absolute path of the guest's program. Throws `failed_precondition` if it was not built. */
export function guestBinary(): string {
  const paths = PLACES.map((place) => fileURLToPath(new URL(place, import.meta.url)));
  const found = paths.find(isExecutable);
  if (found !== undefined) return found;
  throw new CayError('failed_precondition', `The guest's program is missing: "${paths[0]}"`, {
    hint: 'build it with "npm run guest"',
  });
}
