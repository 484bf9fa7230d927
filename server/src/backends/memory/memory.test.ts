import { backendSuite } from '../../../../test/conformance/backend-suite.ts';
import { echoProgram } from '../../../../test/support/echo-program.ts';
import { memoryBackend } from './memory.ts';

backendSuite('memory', async () => {
  const backend = memoryBackend({ commands: { 'echo-server': echoProgram } });
  return {
    backend,
    crash: async (id) => backend.crash(id),
    leftovers: async () => (await backend.list()).map(({ id }) => id),
    echoServer: (port) => ['echo-server', `${port}`],
    cleanup: () => backend.close(),
  };
});
