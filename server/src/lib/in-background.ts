/**
 * Lets work go on that nobody waits for. `void work()` would end the process if the work rejects, so that a
 * linter refuses it; here it has to be said what becomes of a failure.
 */
export function inBackground(work: Promise<unknown>, onError: (error: unknown) => void): void {
  work.catch(onError);
}

/** For work that tells its failures itself, or whose failure changes nothing. */
export const ignoreFailure = (): void => {};
