/**
 * The promise, or after that long a rejection with what `late` gives. What was begun goes on; nobody hears of
 * it any more.
 */
export async function within<T>(ms: number, begun: Promise<T>, late: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const end = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), ms).unref();
  });
  try {
    return await Promise.race([begun, end]);
  } finally {
    clearTimeout(timer);
  }
}
