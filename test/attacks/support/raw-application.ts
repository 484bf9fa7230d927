import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestServer } from '../../../server/src/api/testing/test-server.ts';

const PROGRAM = join(import.meta.dirname, 'raw-application.py');
const DIRECTORY = '/tmp/raw';

/** An application that listens on ports of a sandbox and answers with bytes of the test's choice. */
export interface RawApplication {
  /**
   * What the next requests are answered with, piece by piece. One that hangs neither closes nor answers more.
   */
  answers(pieces: string | readonly string[], options?: { hangs?: boolean }): Promise<void>;
  /** Heads and bodies of the requests that came since this was called last, as they came. */
  seen(): Promise<string[]>;
}

/** Starts it in a sandbox of Alice's, and waits until it listens. */
export async function startRawApplication(
  server: TestServer,
  sandbox: string,
  ports: readonly number[],
): Promise<RawApplication> {
  const program = await readFile(PROGRAM, 'utf8');
  const at = `/v1/sandboxes/${sandbox}`;
  const put = async (name: string, body: string) => {
    const { status, text } = await server.call('PUT', `${at}/files?path=${DIRECTORY}/${name}`, { body });
    if (status >= 300) throw new Error(`"${name}" was not written: ${text}`);
  };
  const application: RawApplication = {
    answers: (pieces, { hangs = false } = {}) =>
      put(
        'answer',
        JSON.stringify({
          pieces: [pieces].flat().map((piece) => Buffer.from(piece, 'latin1').toString('base64')),
          hangs,
        }),
      ),
    async seen() {
      const { text } = await server.call('GET', `${at}/files?path=${DIRECTORY}/seen`);
      await put('seen', '');
      return text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => Buffer.from(line, 'base64').toString('latin1'));
    },
  };
  await put('seen', '');
  await application.answers('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi');
  await server.call('POST', `${at}/commands`, {
    body: { argv: ['python3', '-c', program, DIRECTORY, ...ports.map(String)] },
  });
  const waiting = `until [ -e ${DIRECTORY}/ready ]; do sleep 0.05; done`;
  const { json } = await server.call('POST', `${at}/exec`, {
    body: { argv: ['sh', '-c', waiting], timeoutMs: 20_000 },
  });
  if (json?.exitCode !== 0) throw new Error(`The application does not come up: ${JSON.stringify(json)}`);
  return application;
}
