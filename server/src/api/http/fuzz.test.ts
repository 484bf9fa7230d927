import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { operationsOf, type Operation } from '../testing/operations.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let operations: Operation[];
let sandbox: string;

beforeAll(async () => {
  test = await startTestServer();
  sandbox = (await test.create()).id;
  const finite = (operation: Operation) =>
    !/watch|stream|metrics/.test(operation.path) &&
    operation.id !== 'removeSandbox' &&
    operation.id !== 'stopSandbox';
  operations = operationsOf((await test.call('GET', '/openapi.json', { key: null })).json).filter(finite);
});
afterAll(() => test[Symbol.asyncDispose]());

const ERROR = { error: { code: expect.any(String), message: expect.any(String) } };

/** A request that is like a valid one except for one fault, or not like one at all. */
const damage = (body: unknown) =>
  fc.oneof(
    fc.json({ maxDepth: 3 }),
    fc.string({ maxLength: 100, unit: 'binary' }),
    fc.constantFrom(
      '',
      'null',
      '[]',
      '{',
      '"x"',
      '1e999',
      '{"__proto__":{"admin":true}}',
      '{"constructor":{}}',
      '['.repeat(5000),
    ),
    fc
      .tuple(
        fc.constantFrom(
          ...Object.keys(typeof body === 'object' ? (body as object) : {}),
          'path',
          'argv',
          'limits',
          'extra',
        ),
        fc.jsonValue({ maxDepth: 2 }),
      )
      .map(([name, value]) => JSON.stringify({ ...(body as object), [name]: value })),
  );

// Some thousand requests, one after the other.
describe('malformed requests', { timeout: 120_000 }, () => {
  it('never fail the server, whatever the body is', async () => {
    for (const operation of operations.filter(({ jsonBody }) => jsonBody)) {
      await fc.assert(
        fc.asyncProperty(damage(operation.body), async (body) => {
          const { status, json, text } = await test.call(operation.method, operation.url(sandbox), {
            body,
            key: test.admin.length > 0 && operation.access === 'admin' ? test.admin : test.alice,
          });
          expect(status, `${operation.id} ${body.slice(0, 200)} ${text}`).not.toBe(500);
          // MCP has errors of its own.
          if (status >= 400 && operation.id !== 'mcp') expect(json).toMatchObject(ERROR);
        }),
        { numRuns: 25 },
      );
    }
  });

  it('never fail the server, whatever the query and the path are', async () => {
    const text = fc.oneof(
      fc.string({ maxLength: 40, unit: 'binary' }),
      fc.constantFrom('/', '..', '/../..', '\0', '%00', '%zz', '-1', '1e9', 'sbx_', '9'.repeat(30)),
    );
    for (const operation of operations.filter(({ method }) => method === 'GET' || method === 'DELETE')) {
      await fc.assert(
        fc.asyncProperty(
          fc.dictionary(
            fc.constantFrom(
              'path',
              'user',
              'depth',
              'offset',
              'encoding',
              'follow',
              'limit',
              'cursor',
              'label',
              'after',
              'x',
            ),
            text,
          ),
          text,
          async (query, segment) => {
            const search = Object.entries(query)
              .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
              .join('&');
            const parameter = segment.includes('%')
              ? segment.replaceAll(/[^%0-9a-z]/gi, '')
              : encodeURIComponent(segment);
            const path = operation.path
              .replace('{id}', sandbox)
              .replaceAll(/\{\w+\}/g, () => parameter || 'x');
            const call = test.call(operation.method, `${path}?${search}`);
            // An archive that cannot be completed, as of "/", has its connection reset.
            const reply = await call.catch((error: Error) => {
              if ((error.cause as NodeJS.ErrnoException | undefined)?.code !== 'ECONNRESET') throw error;
              expect(operation.id).toBe('packFiles');
            });
            expect(reply?.status, `${operation.id} ${path}?${search} ${reply?.text}`).not.toBe(500);
          },
        ),
        { numRuns: 25 },
      );
    }
  });

  it('refuse a body that is too large, before it has all arrived', async () => {
    const body = JSON.stringify({ labels: { a: 'x'.repeat(1_100_000) } });
    const { status, json } = await test.call('POST', '/v1/sandboxes', { body });
    expect(status).toBe(400);
    expect(json.error.details.limitBytes).toBe(1_048_576);
  });

  it('tell which field is wrong', async () => {
    const { status, json } = await test.call('POST', '/v1/sandboxes', { body: { limits: { cpus: 'many' } } });
    expect(status).toBe(400);
    expect(json.error.message).toContain('"limits.cpus" in the body');
  });
});
