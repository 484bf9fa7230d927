/** A real server on a free port, with sandboxes that are imitated: for tests of what speaks to one. */
import { mkdtemp, rm } from 'node:fs/promises';
import { memoryBackend } from '../../server/src/backends/memory/memory.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve } from '../../server/src/serve.ts';

export interface MemoryServer extends AsyncDisposable {
  url: string;
  apiKey: string;
}

export async function memoryServer(options: { corsOrigins?: string[] } = {}): Promise<MemoryServer> {
  const dataDir = await mkdtemp('/tmp/cay-memory-server-');
  const server = await serve({
    backend: memoryBackend(),
    dataDir,
    port: 0,
    log: serverLog('silent'),
    ...options,
  });
  return {
    url: server.url,
    apiKey: server.adminKey!,
    async [Symbol.asyncDispose]() {
      await server.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
