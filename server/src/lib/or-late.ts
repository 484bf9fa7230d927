/**
 * The promise's value, or `undefined` after that time. What was begun goes on; nobody hears of it any more.
 */
export async function orLate<T>(begun: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), ms)));
  try {
    return await Promise.race([begun, late]);
  } finally {
    clearTimeout(timer);
  }
}
