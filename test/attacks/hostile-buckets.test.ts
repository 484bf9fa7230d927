/**
 * A tenant names a server of its own as the S3 server of a bucket, which answers what it likes. The server
 * neither waits for it nor fills, and others notice nothing.
 *
 * Runs on the memory backend alone: what the S3 server says is read by the server itself.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTarget, type Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;
const filled = (piece: string, length: number) => piece.repeat(Math.floor(length / piece.length));
const listing = (inner: string, token?: string) =>
  `<ListBucketResult>${inner}<IsTruncated>${token !== undefined}</IsTruncated>` +
  `${token === undefined ? '' : `<NextContinuationToken>${token}</NextContinuationToken>`}</ListBucketResult>`;
const object = (key: string, etag = 'e') =>
  `<Contents><Key>${key}</Key><Size>1</Size><ETag>"${etag}"</ETag></Contents>`;
const keys = (make: (at: number) => string, page: number) =>
  Array.from({ length: 1000 }, (_, at) => object(make(page * 1000 + at))).join('');

interface Answer {
  status?: number;
  body: string;
}

/** What the page of a list is answered with. */
const CASES: readonly { name: string; page(number: number): Answer }[] = [
  { name: 'a name that does not end', page: () => ({ body: `<${filled('a', 3 * MiB)}` }) },
  { name: 'comments that do not end', page: () => ({ body: filled('<!--', 3 * MiB) }) },
  { name: 'an error that does not end', page: () => ({ status: 400, body: `<${filled('a', 60_000)}` }) },
  { name: 'elements in elements', page: () => ({ body: filled('<a>', 3 * MiB) }) },
  {
    name: 'keys that are very deep',
    page: (number) => ({
      body: listing(
        keys((at) => `${filled('a/', 480)}${at}`, number),
        `t${number}`,
      ),
    }),
  },
  {
    name: 'long keys without end',
    page: (number) => ({
      body: listing(
        keys((at) => `${at}${filled(`/${filled('b', 200)}`, 1000)}`, number),
        `t${number}`,
      ),
    }),
  },
  {
    name: 'pages of little in much',
    page: (number) => ({
      body: listing(
        `<!--${filled('x', 3.5 * MiB)}-->${keys((at) => `key-of-an-object-${at}`, number)}`,
        `t${number}`,
      ),
    }),
  },
  {
    name: 'a file above each other',
    page: (number) => ({
      body:
        number < 190
          ? listing(
              keys((at) => `${at}/x`, number),
              `t${number}`,
            )
          : listing(object('100/x/y')),
    }),
  },
];

let target: Target;
let s3: Server;
let answer: (request: IncomingMessage) => Answer = () => ({ body: listing('') });
beforeAll(async () => {
  s3 = createServer((request, response) => {
    request.resume();
    const { status = 200, body } = answer(request);
    response.writeHead(status, { 'content-type': 'application/xml' }).end(body);
  }).listen(0, '127.0.0.1');
  await once(s3, 'listening');
  const endpoint = `127.0.0.1:${(s3.address() as AddressInfo).port}`;
  target = await startTarget({ backend: 'memory', flags: ['--allow-bucket-endpoint', endpoint] });
  await target.alice.call('PUT', '/v1/secrets/S', { body: { value: 'x' } });
  const { status, text } = await target.alice.call('POST', '/v1/buckets', {
    body: { name: 'b', bucket: 'bucket', endpoint: `http://${endpoint}`, accessKeyId: 'x', secret: 'S' },
  });
  if (status !== 201) throw new Error(`the bucket was answered ${status}: ${text}`);
}, 60_000);
afterAll(async () => {
  await target?.[Symbol.asyncDispose]();
  s3?.closeAllConnections();
  s3?.close();
});

describe('an S3 server that answers', () => {
  it.each(CASES)('$name holds nothing up', { timeout: 120_000 }, async ({ page }) => {
    const sandbox = await target.alice.create();
    let number = 0;
    answer = () => page(number++);
    const { grownBytes, slowestMs } = await watchServer(target, async () => {
      const { status, text } = await target.alice.call('POST', '/v1/buckets/b/import', {
        body: { sandbox: sandbox.id, path: '/tmp/x' },
      });
      expect(status, text.slice(0, 300)).toBeGreaterThanOrEqual(400);
      expect(text).not.toContain('"internal"');
    });
    expect(slowestMs).toBeLessThan(1000);
    expect(grownBytes).toBeLessThan(500 * MiB);
    await target.requireAlive();
  });
});
