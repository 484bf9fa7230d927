/**
 * As little of an HTTP client as measuring a server allows: one connection that is kept, one request after
 * the other.
 */
import { Agent, request } from 'node:http';

export interface HttpClient {
  /** Rejects unless the answer is a good one. */
  call(method: string, path: string, body?: unknown): Promise<unknown>;
  close(): void;
}

export function httpClient(url: string, key: string): HttpClient {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  return {
    call: (method, path, body) =>
      new Promise((resolve, reject) => {
        const text = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
        const headers = {
          authorization: `Bearer ${key}`,
          ...(text !== undefined && { 'content-length': Buffer.byteLength(text) }),
          ...(typeof body === 'object' && { 'content-type': 'application/json' }),
        };
        const sent = request(url + path, { method, agent, headers }, (answer) => {
          const chunks: Buffer[] = [];
          answer.on('data', (chunk: Buffer) => chunks.push(chunk));
          answer.on('error', reject);
          answer.on('end', () => {
            const got = Buffer.concat(chunks).toString();
            if ((answer.statusCode ?? 500) >= 300)
              reject(new Error(`${method} ${path} answered ${answer.statusCode}: ${got.slice(0, 200)}`));
            else resolve(answer.headers['content-type'] === 'application/json' ? JSON.parse(got) : got);
          });
        });
        sent.on('error', reject);
        sent.end(text);
      }),
    close: () => agent.destroy(),
  };
}
