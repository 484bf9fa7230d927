/**
 * Writes to standard output at the pace of its reader. A reader that stops early, such as `head`, is not a
 * failure.
 */
export async function writeOut(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const { stdout } = process;
  let gone = false;
  const left = new Promise<void>((resolve) =>
    stdout.once('error', () => {
      gone = true;
      resolve();
    }),
  );
  for await (const chunk of chunks) {
    if (!stdout.write(chunk))
      await Promise.race([new Promise((resolve) => stdout.once('drain', resolve)), left]);
    if (gone) return;
  }
}
