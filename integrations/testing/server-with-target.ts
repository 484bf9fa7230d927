/**
 * A server whose sandboxes reach one HTTPS target outside, `api.example.org`, which says what it was sent.
 */
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { testStartedEgress } from '../../server/src/egress/testing/test-started-egress.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { serve } from '../../server/src/serve.ts';

export interface SeenRequest {
  method: string;
  path: string;
  headers: Record<string, string | string[] | undefined>;
}

export interface ServerWithTarget extends AsyncDisposable {
  url: string;
  apiKey: string;
  /** The target with its port. */
  target: string;
  seen: SeenRequest[];
}

export async function serverWithTarget(runtime: string): Promise<ServerWithTarget> {
  const dir = mkdtempSync('/tmp/cay-target-');
  // Sandboxes reach their files with ids of their own.
  chmodSync(dir, 0o711);
  const outside = openAuthority(newAuthority());
  const seen: SeenRequest[] = [];
  const target = createServer(
    { SNICallback: (name, done) => done(null, outside.contextFor(name)) },
    ({ method, url, headers }, response) => {
      seen.push({ method: method!, path: url!, headers });
      // It tells what it was sent, as a target that leaks credentials does.
      response.end(JSON.stringify(headers));
    },
  );
  target.listen(0, '127.0.0.1');
  await once(target, 'listening');
  const egress = await testStartedEgress({ trusted: [outside.certificate] });
  egress.names.set('api.example.org', ['127.0.0.1']);
  egress.names.set('other.example.org', ['127.0.0.1']);
  const engine = join(dir, 'engine');
  const backend = await openLocal({ dir: engine, runtime, poolSize: 0, egress: egress.engine });
  const server = await serve({
    backend,
    egress,
    dataDir: join(dir, 'data'),
    port: 0,
    log: serverLog('silent'),
  });
  return {
    url: server.url,
    apiKey: server.adminKey!,
    target: `api.example.org:${(target.address() as AddressInfo).port}`,
    seen,
    async [Symbol.asyncDispose]() {
      await server.close();
      egress[Symbol.dispose]();
      target.closeAllConnections();
      target.close();
      await (await openLocal({ dir: engine, runtime })).destroy();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
