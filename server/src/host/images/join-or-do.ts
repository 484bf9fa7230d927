/**
 * Does the work of a key once, however many call at the same time. A caller that joined and saw it fail does
 * it itself: the one that it had joined may only have given up.
 */
export async function joinOrDo(
  underWay: Map<string, Promise<void>>,
  key: string,
  work: () => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  for (let other = underWay.get(key); other !== undefined; other = underWay.get(key)) {
    try {
      return await other;
    } catch {
      signal?.throwIfAborted();
    }
  }
  const own = work().finally(() => underWay.delete(key));
  underWay.set(key, own);
  return own;
}
