import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { memoryBackend } from './memory.ts';
import type { Program } from './program.ts';

const echoServer: Program = async ({ argv, listen, signal }) => {
  listen(Number(argv[1]), async (connection) => {
    for await (const part of connection.readable) await connection.write(part);
    await connection.end();
  });
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
  return 0;
};

backendSuite('memory', async () => {
  const backend = memoryBackend({ commands: { 'echo-server': echoServer } });
  return {
    backend,
    crash: async (id) => backend.crash(id),
    leftovers: async () => (await backend.list()).map(({ id }) => id),
    echoServer: (port) => ['echo-server', `${port}`],
    cleanup: () => backend.close(),
  };
});
