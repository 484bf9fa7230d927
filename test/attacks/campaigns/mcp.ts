/**
 * JSON-RPC from a grammar at `/mcp`: methods that exist and that do not, params from the schemas of the tools
 * and hostile ones, ids of every kind, batches, bodies that are no JSON, headers of other revisions. Each
 * gets an answer that is no failure of the server's, and nothing of another tenant.
 */
import type { Campaign } from '../support/campaign.ts';
import { hostileValue, valueFor, type ValueOptions } from '../support/hostile-value.ts';

const PATIENCE_MS = 5_000;
const METHODS = [
  'initialize',
  'ping',
  'tools/list',
  'tools/call',
  'tools/call',
  'tools/call',
  'tools/call',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'resources/read',
  'resources/subscribe',
  'prompts/list',
  'prompts/get',
  'completion/complete',
  'logging/setLevel',
  'notifications/initialized',
  'notifications/cancelled',
  'notifications/progress',
  'sampling/createMessage',
  'roots/list',
  'server/discover',
  'subscriptions/listen',
  'tasks/get',
  '__proto__',
  'constructor',
  '',
  'x'.repeat(10_000),
];
const REVISIONS = ['2026-07-28', '2025-11-25', '2025-06-18', '2024-11-05', '1999-01-01', '', '\u{e9}', 'x'];
const TYPES = ['application/json', 'application/json; charset=utf-8', 'text/plain', 'application/cbor', ''];
const ACCEPTS = ['application/json, text/event-stream', 'application/json', '*/*', 'text/html', ''];
/** The server failed, in the words of JSON-RPC. */
const INTERNAL = -32_603;

interface Tool {
  name: string;
  inputSchema: unknown;
}

export const mcp: Campaign = {
  name: 'mcp',
  targets: [{ backend: 'memory' }],
  async open(target, random) {
    const { id } = await target.alice.create({ name: 'own' });
    const secret = 'name-of-bobs-sandbox';
    const bob = await target.bob.create({ name: secret });
    const list = await target.alice.call('POST', '/mcp', {
      headers: { accept: ACCEPTS[0]!, 'mcp-protocol-version': '2025-11-25' },
      body: { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} },
    });
    const tools = (messagesIn(list.text)[0]?.result?.tools ?? []) as Tool[];
    if (tools.length === 0) throw new Error(`there are no tools: ${list.status} ${list.text.slice(0, 500)}`);
    const words = [
      id,
      bob.id,
      secret,
      `cay://sandbox/${id}/etc/passwd`,
      `cay://sandbox/${bob.id}/etc/passwd`,
    ];
    words.push('cay://sandboxes', 'cay://sandbox/%/x', `cay://sandbox/${id}/%ff%00`, 'cay:', '/etc/passwd');
    const options: ValueOptions = { random, components: {}, words, hostile: 0.1 };
    return {
      async next() {
        const body = bodyOf(options, tools);
        const headers: Record<string, string> = {
          'content-type': random.chance(0.9) ? TYPES[0]! : random.pick(TYPES),
          accept: random.chance(0.9) ? ACCEPTS[0]! : random.pick(ACCEPTS),
          'mcp-protocol-version': random.chance(0.7) ? '2025-11-25' : asHeader(random.pick(REVISIONS)),
          ...(random.chance(0.2) && { 'mcp-session-id': asHeader(random.pick(words)) }),
          ...(random.chance(0.1) && {
            origin: random.pick(['https://evil.example', 'null', 'http://localhost:1']),
          }),
          ...(random.chance(0.1) && { 'last-event-id': 'x' }),
          ...(random.chance(0.2) && { 'mcp-method': random.pick(['tools/call', 'tools/list', 'x']) }),
        };
        const method = random.chance(0.95) ? 'POST' : random.pick(['GET', 'DELETE', 'PUT']);
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const what = `${method} ${JSON.stringify(headers)} ${body.slice(0, 600)}`;
        const reply = await target.alice
          .call(method, '/mcp', { ...(method === 'POST' && { body }), headers, signal })
          .catch((error: unknown) => {
            // A subscription lasts as long as its reader.
            if (signal.aborted && /subscri|listen/.test(body)) return undefined;
            throw new Error(`${what}: ${String(error)}`);
          });
        if (!reply) return `${what} → open`;
        if (reply.status >= 500) throw new Error(`${what} → ${reply.status} ${reply.text.slice(0, 500)}`);
        // The protocol's own code says so of params that its schemas refuse, with the issues as its message.
        const failed = messagesIn(reply.text).find(
          ({ error } = {}) => error?.code === INTERNAL && !/^\[\s*\{/.test(String(error.message)),
        );
        if (failed) throw new Error(`${what} → ${JSON.stringify(failed).slice(0, 500)}`);
        // What was sent may come back in an error.
        const echoes = body.includes(secret) || body.includes(bob.id);
        if (!echoes && (reply.text.includes(secret) || reply.text.includes(bob.id)))
          throw new Error(`${what} → something of another tenant: ${reply.text.slice(0, 500)}`);
        return `${what.slice(0, 300)} → ${reply.status}`;
      },
    };
  },
};

/** Values of headers are bytes. */
const asHeader = (text: string) => text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 1000);

function bodyOf(options: ValueOptions, tools: readonly Tool[]): string {
  const { random } = options;
  if (random.chance(0.05))
    return random.pick(['', '{', 'null', '[]', '0', '"x"', '[['.repeat(5000), '{"a":'.repeat(5000)]);
  const one = () => messageOf(options, tools);
  const value = random.chance(0.1) ? Array.from({ length: random.pick([0, 1, 3, 200]) }, one) : one();
  const text = JSON.stringify(value);
  return random.chance(0.03) ? text.slice(0, random.below(text.length)) : text;
}

function messageOf(options: ValueOptions, tools: readonly Tool[]): unknown {
  const { random } = options;
  const method = random.pick(METHODS);
  const message: Record<string, unknown> = {
    jsonrpc: random.chance(0.95) ? '2.0' : random.pick(['1.0', 2, null]),
    id: random.chance(0.8) ? random.below(1000) : random.pick(['x', null, 1.5, -1, {}, [], 'y'.repeat(5000)]),
    method,
    params: random.chance(0.1) ? hostileValue(options, 1) : paramsOf(options, method, tools),
  };
  for (const name of Object.keys(message)) if (random.chance(0.03)) delete message[name];
  if (random.chance(0.05)) message['result'] = hostileValue(options, 2);
  return message;
}

function paramsOf(options: ValueOptions, method: string, tools: readonly Tool[]): unknown {
  const { random, words } = options;
  const meta = random.chance(0.2) && { _meta: { progressToken: hostileValue(options, 3) } };
  if (method === 'tools/call') {
    const { name, inputSchema } = random.pick(tools);
    return { name, arguments: valueFor(inputSchema, options), ...meta };
  }
  if (method.startsWith('resources/')) return { uri: random.pick(words), ...meta };
  if (method === 'initialize')
    return {
      protocolVersion: random.pick(REVISIONS),
      capabilities: hostileValue(options, 3),
      clientInfo: { name: 'x', version: '0' },
    };
  return random.chance(0.5) ? {} : hostileValue(options, 2);
}

// Answers have every shape.
// oxlint-disable-next-line typescript/no-explicit-any
function messagesIn(text: string): any[] {
  const lines = text.startsWith('{') || text.startsWith('[') ? [text] : text.split('\n');
  return lines.flatMap((line) => {
    try {
      return JSON.parse(line.replace(/^data: ?/, '')) as unknown[];
    } catch {
      return [];
    }
  });
}
