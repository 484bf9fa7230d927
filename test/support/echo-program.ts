import type { Program } from '../../server/src/backends/memory/program.ts';

/** What echoes every connection on a port, for the memory backend. */
export const echoProgram: Program = async ({ argv, listen, signal }) => {
  listen(Number(argv[1]), async (connection) => {
    for await (const part of connection.readable) await connection.write(part);
    await connection.end();
  });
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
  return 0;
};
