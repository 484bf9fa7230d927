/**
 * A relay in front of a real API server that can answer in its place, as one that is asked for too much does,
 * change what is asked, and break off or spoil watches. It speaks plain HTTP to this process, and to the API
 * server as its administrator.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Cluster } from './cluster.ts';

export interface Asked {
  method: string;
  /** With its query; may be changed. */
  url: string;
}

export interface Instead {
  status: number;
  headers?: Record<string, string>;
  reason: string;
}

export interface MeddlingRelay {
  readonly kubeconfig: string;
  /** Called with every request from now on; what it gives is the answer, else the API server answers. */
  meddle(how?: (asked: Asked) => Instead | undefined): void;
  /** How many watches are open. */
  watches(): number;
  /** Breaks off every watch, after a last line if there is one. */
  breakWatches(last?: object): void;
  stop(): Promise<void>;
}

export async function meddlingRelay({ directory, kubeconfig: original }: Cluster): Promise<MeddlingRelay> {
  const config = JSON.parse(await readFile(original, 'utf8')) as {
    clusters: { cluster: Record<string, unknown> }[];
    users: { user: object }[];
  };
  const target = String(config.clusters[0]!.cluster['server']);
  const [ca, cert, key] = await Promise.all(
    ['ca.crt', 'admin.crt', 'admin.key'].map((file) => readFile(`${directory}/pki/${file}`)),
  );
  const watches = new Set<ServerResponse>();
  let how: (asked: Asked) => Instead | undefined = () => undefined;

  function relay(from: IncomingMessage, to: ServerResponse): void {
    const asked: Asked = { method: from.method ?? 'GET', url: from.url ?? '/' };
    const instead = how(asked);
    if (instead) {
      const { status, headers, reason } = instead;
      from.resume();
      to.writeHead(status, { 'Content-Type': 'application/json', ...headers });
      to.end(JSON.stringify({ kind: 'Status', status: 'Failure', code: status, reason, message: reason }));
      return;
    }
    const { host: _, ...headers } = from.headers;
    const sent = request(
      `${target}${asked.url}`,
      { method: asked.method, headers, ca, cert, key },
      (answer) => {
        to.writeHead(answer.statusCode ?? 502, answer.headers);
        if (asked.url.includes('watch=true')) {
          to.flushHeaders();
          watches.add(to);
          to.once('close', () => watches.delete(to));
        }
        answer.pipe(to);
        answer.on('error', () => to.destroy());
      },
    );
    sent.on('error', () => to.destroy());
    to.once('close', () => sent.destroy());
    from.pipe(sent);
  }

  const server = createServer(relay);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const kubeconfig = `${directory}/meddling-kubeconfig`;
  config.clusters[0]!.cluster = {
    'insecure-skip-tls-verify': true,
    server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  };
  config.users[0]!.user = {};
  await writeFile(kubeconfig, JSON.stringify(config), { mode: 0o600 });

  return {
    kubeconfig,
    meddle: (next = () => undefined) => (how = next),
    watches: () => watches.size,
    breakWatches(last) {
      for (const watch of watches) {
        if (last) watch.end(`${JSON.stringify(last)}\n`);
        else watch.destroy();
      }
      watches.clear();
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
