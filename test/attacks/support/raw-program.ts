import type { Incoming, Program } from '../../../server/src/backends/memory/program.ts';

export interface RawApplication {
  readonly program: Program;
  /** Heads and bodies of the requests that came, as they came. */
  readonly seen: string[];
  /** What the next requests are answered with; an array is written piece by piece. */
  answer: string | string[];
  /** Neither closes nor answers more after that. */
  hangs: boolean;
}

/** A program for the memory backend that listens on a port and answers with bytes of the test's choice. */
export function rawApplication(): RawApplication {
  const application: RawApplication = {
    seen: [],
    answer: '',
    hangs: false,
    program: ({ argv, listen, signal }) => {
      for (const port of argv.slice(1)) listen(Number(port), serve);
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve(0), { once: true }));
    },
  };

  async function serve(incoming: Incoming): Promise<void> {
    let request = '';
    const at = application.seen.push('') - 1;
    const { answer, hangs } = application;
    let answered = false;
    for await (const data of incoming.readable) {
      request += Buffer.from(data).toString('latin1');
      application.seen[at] = request;
      if (answered || !request.includes('\r\n\r\n')) continue;
      answered = true;
      for (const piece of [answer].flat()) await incoming.write(Buffer.from(piece, 'latin1'));
      if (!hangs) await incoming.end();
    }
  }
  return application;
}
