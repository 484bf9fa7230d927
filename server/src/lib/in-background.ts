/**
 * Runs work without awaiting it. A rejection of `void work()` would end the process; here the caller must say
 * what happens to a failure.
 */
export function inBackground(work: Promise<unknown>, onError: (error: unknown) => void): void {
  work.catch(onError);
}

/** For work that reports its failures itself, or whose failure has no effect. */
export const ignoreFailure = (): void => {};
