/**
 * A tenant names hosts whose name server never answers, wherever tenants may name hosts. Looking them up must
 * hold up no lookup of anybody else: the system's resolver has two threads for all of them, the server's own
 * included.
 *
 * Runs on the memory backend, in a mount namespace whose name server is a socket that is silent.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTarget, type Target } from './support/target.ts';

const NAME_SERVER = '127.0.0.99';
const WEBHOOKS = 16;
const BUCKETS = 4;
/** What Bob asks for is in the hosts file; nobody listens there. */
const NEAR = 'localhost:9';
/** More than six attempts and their pauses take, and less than the queue of the system’s resolver. */
const PATIENCE_MS = 8_000;

let target: Target;
let silent: Socket;
let directory: string;
let asked = 0;
beforeAll(async () => {
  silent = createSocket('udp4');
  silent.on('message', () => asked++);
  silent.bind(53, NAME_SERVER);
  await once(silent, 'listening');
  directory = await mkdtemp(join(tmpdir(), 'cay-names-'));
  const file = join(directory, 'resolv.conf');
  await writeFile(file, `nameserver ${NAME_SERVER}\n`);
  target = await startTarget({
    backend: 'memory',
    flags: ['--allow-bucket-endpoint', NEAR],
    through: ['unshare', '--mount', 'sh', '-c', `mount --bind ${file} /etc/resolv.conf && exec "$0" "$@"`],
  });
}, 60_000);
afterAll(async () => {
  await target?.[Symbol.asyncDispose]();
  silent?.close();
  await rm(directory, { recursive: true, force: true });
});

describe('names whose name server is silent', () => {
  it(
    'as the hosts of webhooks and buckets hold up no lookup of another tenant',
    { timeout: 60_000 },
    async () => {
      const { alice, bob } = target;
      for (const tenant of [alice, bob])
        expect((await tenant.call('PUT', '/v1/secrets/S', { body: { value: 'x' } })).status).toBeLessThan(
          300,
        );
      const bucketAt = (endpoint: string) => ({
        name: 'b',
        bucket: 'bucket',
        endpoint,
        accessKeyId: 'x',
        secret: 'S',
      });
      for (let count = 0; count < WEBHOOKS; count++) {
        const made = await alice.call('POST', '/v1/webhooks', {
          body: { url: `https://w${count}.silent.example/` },
        });
        expect(made.status, made.text).toBe(201);
      }
      const gone = new AbortController();
      const buckets = Array.from({ length: BUCKETS }, (_, count) =>
        alice
          .call('POST', '/v1/buckets', {
            body: bucketAt(`https://b${count}.silent.example`),
            signal: gone.signal,
          })
          .catch(() => undefined),
      );
      // An event for every webhook.
      await alice.create();
      await expect.poll(() => asked, { timeout: 10_000 }).toBeGreaterThan(2);

      const began = performance.now();
      const { status, text } = await bob.call('POST', '/v1/buckets', { body: bucketAt(`http://${NEAR}`) });
      const ms = performance.now() - began;
      expect(status, text).toBe(503);
      gone.abort();
      await Promise.all(buckets);
      expect(ms).toBeLessThan(PATIENCE_MS);
      await target.requireAlive();
    },
  );
});
