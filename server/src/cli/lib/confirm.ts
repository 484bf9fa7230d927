import { createInterface } from 'node:readline/promises';
import { CayError } from '@cay/sdk/client';
import { usageError } from './failure.ts';

/** Asks on the terminal. Without one, and without `--yes`, it refuses: nothing is removed by accident. */
export async function confirm(question: string, { yes }: { yes?: boolean }): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw usageError(`Cannot ask without a terminal: ${question}`, 'give --yes');
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await lines.question(`${question} [y/N] `);
  lines.close();
  if (!/^y(es)?$/i.test(answer.trim()))
    throw new CayError('cancelled', 'Nothing was removed', { hint: 'answer y, or give --yes' });
}
