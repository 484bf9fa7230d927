/**
 * A proxy of ours in front of an HTTP server that does what it is told to requests: refuses, delays, cuts,
 * damages.
 */
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Fault =
  /** Answers so without asking the server. */
  | { do: 'answer'; status: number; body?: string; headers?: Record<string, string> }
  /** Asks the server, and answers so: what was asked for has happened. */
  | { do: 'lose'; status: number }
  /** Closes the connection after so many bytes of the body of the answer. */
  | { do: 'cut'; afterBytes: number }
  /** Waits before the server is asked. */
  | { do: 'delay'; ms: number }
  /** Never answers. */
  | { do: 'hang' }
  /** Sends the head and some bytes, and then nothing more. */
  | { do: 'stall'; afterBytes: number }
  /** Changes one byte of the answer's body. */
  | { do: 'damage' }
  /** Changes one byte of the request's body. */
  | { do: 'damage request' };

export interface FaultyProxy {
  readonly endpoint: string;
  /** Asked for every request, in order. */
  fault: (request: { method: string; url: string }, number: number) => Fault | undefined;
  /** All that came, as `GET /path`. */
  readonly seen: string[];
  stop(): Promise<void>;
}

export async function startFaultyProxy(target: string): Promise<FaultyProxy> {
  const to = new URL(target);
  const server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = request;
    const number = proxy.seen.push(`${method} ${url}`);
    const fault = proxy.fault({ method, url }, number);
    if (fault?.do === 'hang') return;
    if (fault?.do === 'answer') {
      request.resume();
      response.writeHead(fault.status, fault.headers).end(fault.body);
      return;
    }
    if (fault?.do === 'delay') await new Promise((resolve) => setTimeout(resolve, fault.ms));
    const answer = await forward(request, fault?.do === 'damage request');
    if (fault?.do === 'lose') {
      answer.resume();
      response.writeHead(fault.status).end();
      return;
    }
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    let sent = 0;
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      if (fault?.do === 'damage' && sent === 0) chunk[0] = (chunk[0] ?? 0) ^ 1;
      if ((fault?.do === 'cut' || fault?.do === 'stall') && sent + chunk.length > fault.afterBytes) {
        response.write(chunk.subarray(0, fault.afterBytes - sent));
        if (fault.do === 'stall') return;
        setTimeout(() => response.destroy(), 20);
        return;
      }
      sent += chunk.length;
      if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve));
    }
    response.end();
  }

  function forward(request: IncomingMessage, damaged: boolean): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const { method, url, headers } = request;
    const outgoing = httpRequest({ host: to.hostname, port: to.port, method, path: url, headers }, resolve);
    outgoing.on('error', reject);
    request.on('data', (chunk: Buffer) => {
      if (damaged) chunk[0] = (chunk[0] ?? 0) ^ 1;
      outgoing.write(chunk);
    });
    request.on('end', () => outgoing.end());
    request.on('error', reject);
    return promise;
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy: FaultyProxy = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    fault: () => undefined,
    seen: [],
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}
