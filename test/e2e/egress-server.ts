import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox } from '@cay/sdk';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { testStartedEgress } from '../../server/src/egress/testing/test-started-egress.ts';
import { serve, type ServeOptions } from '../../server/src/serve.ts';

export interface EgressServerOptions extends Pick<ServeOptions, 'policy' | 'webhooks'> {
  dir: string;
  runtime: string;
  /** Names that lead to loopback. */
  names: readonly string[];
  /** Certificates of authorities that servers outside have theirs from. */
  trusted?: readonly string[];
  /** Of a server that was open on the same data before. */
  apiKey?: string | undefined;
}

export interface EgressServer {
  readonly access: { url: string; apiKey: string };
  /** Where names lead. */
  readonly names: Map<string, string[]>;
  /** Leaves the data, so that it can be opened again as after a restart. */
  close(): Promise<void>;
  /** Closes it, and removes all sandboxes and the directory. */
  destroy(): Promise<void>;
}

/** A server on this machine whose sandboxes have loopback in place of the internet. */
export async function openEgressServer(options: EgressServerOptions): Promise<EgressServer> {
  const { dir, runtime, policy, webhooks } = options;
  const egress = await testStartedEgress({ trusted: options.trusted ?? [] });
  for (const name of options.names) egress.names.set(name, ['127.0.0.1']);
  const engine = join(dir, 'engine');
  const given = policy && { policy };
  const server = await serve({
    backend: await openLocal({ dir: engine, runtime, poolSize: 0, egress: egress.engine, ...given }),
    egress,
    dataDir: join(dir, 'control'),
    port: 0,
    log: serverLog('silent'),
    ...given,
    ...(webhooks && { webhooks }),
  });
  const access = { url: server.url, apiKey: server.adminKey ?? options.apiKey! };
  const close = async () => {
    await server.close();
    egress[Symbol.dispose]();
  };
  return {
    access,
    names: egress.names,
    close,
    async destroy() {
      for await (const sandbox of Sandbox.list(access)) await sandbox.kill();
      await close();
      await (await openLocal({ dir: engine, runtime })).destroy();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
