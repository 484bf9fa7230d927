/**
 * One request, sent again and again over one connection as bytes that were made ready before: it
 * costs next to nothing, so that what is measured is the server's.
 */
import { connect } from 'node:net';

export interface RawClient {
  /** Rejects unless the answer is a good one. */
  call(): Promise<void>;
  close(): void;
}

export async function rawClient(url: string, key: string, path: string, body: unknown): Promise<RawClient> {
  const { hostname, port, host } = new URL(url);
  const text = JSON.stringify(body);
  const bytes = Buffer.from(
    `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${key}\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
  const socket = connect(Number(port), hostname).setNoDelay();
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  let waiting: { resolve(): void; reject(error: Error): void } | undefined;
  let answer = '';
  socket.on('data', (data: Buffer) => {
    answer += data.toString('latin1');
    const head = answer.indexOf('\r\n\r\n');
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(answer)?.[1] ?? Number.NaN);
    if (head < 0 || answer.length < head + 4 + length) return;
    if (answer.startsWith('HTTP/1.1 200')) waiting?.resolve();
    else waiting?.reject(new Error(answer.slice(0, 500)));
    answer = '';
  });
  socket.on('close', () => waiting?.reject(new Error('The server hung up')));
  return {
    call: () =>
      new Promise((resolve, reject) => {
        waiting = { resolve, reject };
        socket.write(bytes);
      }),
    close: () => socket.destroy(),
  };
}
