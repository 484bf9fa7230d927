import type { CommandHandle, Guest } from '../../server/src/guest/guest.ts';
import { within, type Box } from './box.ts';

/**
 * Says, to each line, how many there have been, its pid and the line; and notes it in a file that it holds
 * open.
 */
const SHELL = 'exec 3>>$1; n=0; while read -r line; do n=$((n+1)); echo "$n $$ $line"; echo "$n" >&3; done';

/** A process that remembers: what it says tells whether it is the same one, with the memory that it had. */
export interface Counter {
  readonly id: string;
  readonly pid: number;
  /** Sends a line, and gives the count and the pid that it is answered with. */
  ask(line: string): Promise<{ count: number; pid: number }>;
}

export async function startCounter(
  box: Box,
  options: { pty?: { cols: number; rows: number } } = {},
): Promise<Counter> {
  const handle = await box.start(
    ['sh', '-c', SHELL, 'sh', `${box.dir}/counted`],
    options.pty ? options : { stdin: true },
  );
  return counterOf(handle);
}

/** The same command, attached again. Its earlier output is skipped. */
export async function holdCounter(guest: Guest, { id }: Pick<Counter, 'id'>): Promise<Counter> {
  return counterOf(await guest.attach(id));
}

function counterOf(handle: CommandHandle): Counter {
  const chunks = handle.output[Symbol.asyncIterator]();
  let text = '';
  return {
    id: handle.id,
    pid: handle.pid,
    async ask(line) {
      await handle.write(Buffer.from(`${line}\n`));
      for (;;) {
        const match = new RegExp(`^(\\d+) (\\d+) ${line}\\r?$`, 'm').exec(text);
        if (match) return { count: Number(match[1]), pid: Number(match[2]) };
        const next = await within(
          10_000,
          `an answer to ${JSON.stringify(line)}, after ${JSON.stringify(text)}`,
          chunks.next(),
        );
        if (next.done)
          throw new Error(
            `The counter ended without an answer to ${JSON.stringify(line)}: ${JSON.stringify(text)}`,
          );
        if (next.value.channel !== 'gap') text += Buffer.from(next.value.data).toString();
      }
    },
  };
}
