/** A server of ours on a real runtime, as E2B's clients find it: an address and a key. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve, type ServeOptions } from '../../server/src/serve.ts';

export interface Access {
  apiKey: string;
  apiUrl: string;
  sandboxUrl: string;
}

export interface E2bPlatform extends AsyncDisposable {
  url: string;
  /** Two projects that do not see each other. */
  access: Access;
  stranger: Access;
  /** Ends the server, and starts another in its place. */
  restart(): Promise<void>;
}

export interface Answer {
  status: number;
  body: string;
}

export async function openE2bPlatform(
  runtime: string,
  options: Partial<ServeOptions> = {},
): Promise<E2bPlatform> {
  const dir = mkdtempSync('/tmp/cay-e2b-');
  // Sandboxes reach their files with ids of their own.
  chmodSync(dir, 0o711);
  const host = `${dir}/host`;
  const open = async (port: number) =>
    serve({
      backend: await openLocal({ dir: host, runtime, poolSize: 0, egress: options.egress?.engine }),
      dataDir: `${dir}/data`,
      port,
      log: serverLog('fatal'),
      ...options,
    });
  let server = await open(0);
  const admin = server.adminKey!;
  const call = async (path: string, body: unknown) => {
    const response = await fetch(server.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${admin}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return (await response.json()) as { secret: string };
  };
  await call('/v1/projects', { name: 'stranger' });
  const { secret } = await call('/v1/keys', { name: 'stranger', project: 'stranger' });
  const access = (apiKey: string) => ({ apiKey, apiUrl: server.url, sandboxUrl: server.url });
  return {
    url: server.url,
    access: access(admin),
    stranger: access(secret),
    async restart() {
      await server.close();
      server = await open(Number(new URL(server.url).port));
    },
    async [Symbol.asyncDispose]() {
      await server.close();
      await (await openLocal({ dir: host })).destroy();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** A request to a host that no name service here knows. */
export function visit(
  url: string,
  host: string,
  path = '/',
  headers: Record<string, string> = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    request({ hostname, port, path, headers: { ...headers, host } }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }),
      );
    })
      .on('error', reject)
      .end();
  });
}

/** Resolves when the condition holds; rejects with what it says when it has not for long. */
export async function eventually(condition: () => unknown, timeoutMs = 10_000): Promise<void> {
  const until = Date.now() + timeoutMs;
  for (;;) {
    if (await condition()) return;
    if (Date.now() > until) throw new Error(`It did not become true: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
