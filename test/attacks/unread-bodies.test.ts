/**
 * A client sends more of a body than the call needs to decide. The answer comes early, and what is left of
 * the body must not hold up the next request of the connection: a proxy in front may have it from another
 * client.
 *
 * Runs on the memory backend alone: the calls are answered before any sandbox has all of the body.
 */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CALL_MESSAGES } from '../../server/src/api/e2b/envd/proto-messages.ts';
import { e2bSandbox, type E2bSandbox } from './support/e2b-sandbox.ts';
import { startTarget, type Target } from './support/target.ts';

const BODY_BYTES = 1024 ** 2;
/** Longer than a connection is kept for a client that goes on sending. */
const PATIENCE_MS = 5_000;
const AT_ONCE = 16;

let target: Target;
let box: E2bSandbox;
beforeAll(async () => {
  target = await startTarget({ backend: 'memory' });
  box = await e2bSandbox(target);
}, 60_000);
afterAll(() => target?.[Symbol.asyncDispose]());

type Outcome = 'the next request is answered' | 'the connection is closed' | 'the next request waits';

/**
 * Sends a request with a body, and one to `/healthz` on the same connection as soon as the first is answered.
 */
function followed(head: readonly string[], body: Buffer): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = connect({ host: target.host, port: target.port });
    let text = '';
    let asked = false;
    const done = (outcome: Outcome) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(outcome);
    };
    const timer = setTimeout(() => done('the next request waits'), PATIENCE_MS);
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (!asked && text.startsWith('HTTP/1.1 ')) {
        asked = true;
        socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
      }
      if (text.includes('"status":"ok"') || text.lastIndexOf('HTTP/1.1 200') > 0)
        done('the next request is answered');
    });
    socket.on('error', () => {}).on('close', () => done('the connection is closed'));
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
    socket.write(body);
  });
}

interface Framing {
  name: string;
  header: string;
  body: Buffer;
}

/** Bytes that no call takes for what it expects, in the framings that HTTP has. */
function framings(): Framing[] {
  const bytes = Buffer.alloc(BODY_BYTES, 0xff);
  // The length of a message of Connect that is shorter than the body.
  bytes.set([0, 0, 0, 0, 4]);
  const chunked = [Buffer.from(`${BODY_BYTES.toString(16)}\r\n`), bytes, Buffer.from('\r\n0\r\n\r\n')];
  return [
    { name: 'with a length', header: `Content-Length: ${BODY_BYTES}`, body: bytes },
    { name: 'in chunks', header: 'Transfer-Encoding: chunked', body: Buffer.concat(chunked) },
  ];
}

interface Call {
  name: string;
  head: string[];
}

/** Every route with a body, as the server tells it, by a client with and without credentials. */
async function calls(): Promise<Call[]> {
  const { json } = await target.stranger('GET', '/openapi.json');
  const paths = Object.entries(json.paths as Record<string, Record<string, { requestBody?: unknown }>>);
  const own = paths.flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { requestBody }]) => requestBody !== undefined)
      .map(([method]) => ({
        name: `${method.toUpperCase()} ${path}`,
        line: `${method.toUpperCase()} ${path.replace('{id}', box.id).replaceAll(/\{\w+\}/g, 'x')}`,
        credentials: [`Authorization: Bearer ${target.alice.key}`],
        types: ['application/json', 'application/x-tar', 'application/octet-stream'],
      })),
  );
  const token = Object.entries(box.headers).map(([name, value]) => `${name}: ${value}`);
  const inside = [...Object.keys(CALL_MESSAGES), '/files?path=/tmp/x&username=user'].map((path) => ({
    name: path,
    line: `POST ${path}`,
    credentials: token,
    types: [
      'application/connect+proto',
      'application/connect+json',
      'application/proto',
      'multipart/form-data',
    ],
  }));
  const others = ['/sandboxes', '/templates', '/v3/templates', '/mcp'].map((path) => ({
    name: path,
    line: `POST ${path}`,
    credentials: [`X-API-Key: ${target.alice.key}`, `Authorization: Bearer ${target.alice.key}`],
    types: ['application/json'],
  }));
  return [...own, ...inside, ...others].flatMap(({ name, line, credentials, types }) =>
    types.flatMap((type) =>
      [credentials, []].map((given) => ({
        name: `${name} as ${type}${given.length > 0 ? '' : ' without credentials'}`,
        head: [`${line} HTTP/1.1`, 'Host: x', `Content-Type: ${type}`, ...given],
      })),
    ),
  );
}

describe('a body that is longer than the call needs', () => {
  it.each(framings())('holds up no other request ($name)', { timeout: 240_000 }, async ({ header, body }) => {
    const held: string[] = [];
    const waiting = await calls();
    expect(waiting.length).toBeGreaterThan(100);
    const work = async () => {
      for (let call = waiting.pop(); call; call = waiting.pop()) {
        const outcome = await followed([...call.head, header], body);
        if (outcome === 'the next request waits') held.push(call.name);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    expect(held).toEqual([]);
    await target.requireAlive();
  });
});
