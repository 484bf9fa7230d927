import { CayError, isCayError } from '@cay/sdk/client';
import { exitCodeOf, reportFailure } from './failure.ts';
import { print, printJson } from './output.ts';
import type { CommonOptions } from './settings.ts';

interface Removal {
  /** What one of them is called, such as `Key`. */
  kind: string;
  /** The command line that lists them. */
  list: string;
  /** The field of the results that has the reference. */
  field: string;
  /** What the API calls the one of that reference; undefined if there is none. */
  find(ref: string): Promise<string | undefined>;
  remove(found: string): Promise<unknown>;
}

/**
 * Removes what is named, one by one; one that fails does not keep the others from it.
 *
 * The API answers the same whether something was removed or never existed, so that a call can be repeated.
 * A name that is typed and does not exist is an error.
 */
export async function removeEach(
  refs: readonly string[],
  options: CommonOptions,
  { kind, list, field, find, remove }: Removal,
): Promise<void> {
  for (const ref of refs) {
    try {
      const found = ref === '' ? undefined : await find(ref);
      if (found === undefined)
        throw new CayError('not_found', `${kind} "${ref}" does not exist`, {
          hint: `"${list}" lists those that do`,
        });
      await remove(found);
      if (options.json) printJson({ [field]: ref });
      else print(ref);
    } catch (error) {
      reportFailure(error);
      process.exitCode = exitCodeOf(error);
    }
  }
}

/** `find` where the API has one of them under its reference. What cannot be a reference is none. */
export function existsAt(get: (ref: string) => Promise<unknown>): Removal['find'] {
  return async (ref) => {
    try {
      await get(ref);
      return ref;
    } catch (error) {
      if (isCayError(error, 'not_found') || isCayError(error, 'invalid_argument')) return undefined;
      throw error;
    }
  };
}
