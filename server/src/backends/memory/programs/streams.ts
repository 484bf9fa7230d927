import { wordsOf } from '../errno.ts';
import type { ProgramContext } from '../program.ts';

/** A stream that is at its end. */
export async function* none(): AsyncIterable<Uint8Array> {}

export async function gather(data: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of data) parts.push(part);
  return Buffer.concat(parts);
}

/** What a program reads that takes file names: standard input where there are none, or for `-`. */
export async function openInput(
  context: ProgramContext,
  name: string | undefined,
): Promise<AsyncIterable<Uint8Array>> {
  if (name === undefined || name === '-') return context.stdin;
  return (await context.files.read(context.path(name))).data;
}

/** Does it for each name; one that fails is reported, and the others are still done. */
export async function forEach(
  context: ProgramContext,
  names: readonly string[],
  act: (name: string) => Promise<void>,
): Promise<number> {
  let exitCode = 0;
  for (const name of names) {
    try {
      await act(name);
    } catch (error) {
      if (context.signal.aborted || !(error instanceof Error) || error.name === 'BrokenPipe') throw error;
      await context.stderr.write(`${context.argv[0]}: ${name}: ${wordsOf(error)}\n`);
      exitCode = 1;
    }
  }
  return exitCode;
}

/** Takes the flags that are known off the front, `-rf` as `-r -f`. Throws for any other. */
export function flagsOf(argv: readonly string[], known: string): { flags: Set<string>; rest: string[] } {
  const flags = new Set<string>();
  const rest = argv.slice(1);
  while (rest[0]?.startsWith('-') && rest[0] !== '-') {
    const text = rest.shift()!;
    if (text === '--') break;
    for (const flag of text.slice(1)) {
      if (!known.includes(flag)) throw new Error(`option "-${flag}" is not known to the memory backend`);
      flags.add(flag);
    }
  }
  return { flags, rest };
}
