/**
 * A stand-in for registries that misbehave, which a real one cannot be made to. It speaks the distribution
 * API, version 2, over HTTP on loopback, and answers what a test says.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sha256, type TestImage } from './test-image.ts';

export interface HostileRegistry {
  readonly address: string;
  /** Method, path and headers of every request. */
  readonly requests: { path: string; headers: IncomingMessage['headers'] }[];
  /** Has it under `/v2/<repository>/manifests/<tag>`. */
  serve(repository: string, tag: string, image: TestImage): void;
  /** Answers before everything else if it returns true. */
  intercept: (request: IncomingMessage, response: ServerResponse) => boolean;
  stop(): Promise<void>;
}

export async function startHostileRegistry(): Promise<HostileRegistry> {
  const contents = new Map<string, Buffer>();
  const requests: HostileRegistry['requests'] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    requests.push({ path, headers: request.headers });
    if (registry.intercept(request, response)) return;
    const content = contents.get(path);
    if (!content) return void response.writeHead(404).end();
    const from = Number(/^bytes=([0-9]+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    if (from > 0)
      response.writeHead(206, { 'content-range': `bytes ${from}-${content.length - 1}/${content.length}` });
    response.end(content.subarray(from));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const registry: HostileRegistry = {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    intercept: () => false,
    serve(repository, tag, { manifest, blobs }) {
      contents.set(`/v2/${repository}/manifests/${tag}`, manifest);
      contents.set(`/v2/${repository}/manifests/${sha256(manifest)}`, manifest);
      for (const [digest, bytes] of blobs) contents.set(`/v2/${repository}/blobs/${digest}`, bytes);
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return registry;
}
