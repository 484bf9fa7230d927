import { CayError, isCayError } from '@cay/sdk/client';

/** Tells where the snapshots of a sandbox are listed, if one is named that is not among them. */
export async function atSnapshot<T>(sandbox: string, task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    if (!isCayError(error, 'not_found') || error.hint !== undefined || !error.message.startsWith('Snapshot '))
      throw error;
    throw new CayError('not_found', error.message, {
      cause: error,
      hint: `"cay snapshot ls ${sandbox}" shows those that do`,
    });
  }
}
