/**
 * An HTTP server that answers as an API server would, to cases that a real one cannot be brought to: what it
 * says is the case's own.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { kubernetesClient, type KubernetesClient } from '../client/kubernetes-client.ts';

export interface FakeApiServer {
  readonly client: KubernetesClient;
  /** The paths with their queries that were asked for, in order. */
  readonly asked: string[];
  close(): Promise<void>;
}

export interface FakeOptions {
  answer(url: URL, response: ServerResponse): void;
  upgrade?(request: IncomingMessage, socket: Duplex, head: Buffer): void;
}

export async function fakeApiServer({ answer, upgrade }: FakeOptions): Promise<FakeApiServer> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://fake');
    asked.push(`${request.method} ${url.pathname}${url.search}`);
    answer(url, response);
  });
  if (upgrade) server.on('upgrade', upgrade);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const directory = await mkdtemp('/tmp/cay-fake-api-');
  const kubeconfig = `${directory}/kubeconfig`;
  const cluster = {
    server: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    'insecure-skip-tls-verify': true,
  };
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'fake',
    clusters: [{ name: 'fake', cluster }],
    users: [{ name: 'fake', user: {} }],
    contexts: [{ name: 'fake', context: { cluster: 'fake', user: 'fake', namespace: 'here' } }],
  };
  await writeFile(kubeconfig, JSON.stringify(config));
  const client = await kubernetesClient({ kubeconfig });
  await rm(directory, { recursive: true });
  return {
    client,
    asked,
    async close() {
      client.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
