/** The MCP server as clients meet it: over HTTP and over standard input, in both protocol eras. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LAUNCHER_PATH, openCay, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { killServing, startServing, type Serving } from '../support/serving.ts';

interface Answer {
  content: { type: string; text?: string }[];
  structuredContent?: Record<string, unknown>;
  isError?: boolean;
  _meta?: Record<string, unknown>;
}

const MODERN = { versionNegotiation: { mode: { pin: '2026-07-28' } } } as const;
const LEGACY = { versionNegotiation: { mode: 'legacy' } } as const;

describe.skipIf(whyNoLocal() !== undefined)('MCP', () => {
  let cay: Cay;
  let env: NodeJS.ProcessEnv;
  let server: Serving;
  beforeAll(async () => {
    cay = await openCay({ CAY_RUNTIME: 'runc' });
    env = cay.env;
    server = await startServing(env);
  });
  afterAll(async () => {
    await killServing(server, 'SIGTERM');
    await cay[Symbol.asyncDispose]();
  });

  const overHttp = () =>
    new StreamableHTTPClientTransport(new URL('/mcp', server.url), {
      requestInit: { headers: { authorization: `Bearer ${server.key}` } },
    });
  const overStdio = () =>
    new StdioClientTransport({
      command: LAUNCHER_PATH,
      args: ['mcp'],
      env: { ...(env as Record<string, string>), CAY_URL: server.url, CAY_API_KEY: server.key },
    });

  it.each([
    ['HTTP, 2026-07-28', overHttp, MODERN],
    ['HTTP, 2025-11-25', overHttp, LEGACY],
    ['stdio, 2026-07-28', overStdio, MODERN],
    ['stdio, 2025-11-25', overStdio, LEGACY],
  ] as const)('serves sandboxes over %s', async (_, transport, options) => {
    const client = new Client({ name: 'test', version: '1' }, options);
    await client.connect(transport());
    const call = async (name: string, input: Record<string, unknown>) =>
      (await client.callTool({ name, arguments: input })) as unknown as Answer;
    try {
      const { tools } = await client.listTools();
      expect(tools).toHaveLength(18);
      for (const tool of tools) {
        expect(tool.outputSchema, tool.name).toBeDefined();
        expect(tool.annotations?.readOnlyHint, tool.name).toBeTypeOf('boolean');
        if (!['sandbox_create', 'sandbox_list'].includes(tool.name))
          expect(tool.inputSchema.required, tool.name).toContain('sandbox');
      }
      const made = await call('sandbox_create', {});
      const sandbox = String(made.structuredContent!['id']);
      await call('write', { sandbox, file_path: 'a.txt', content: 'one\n' });
      const checkpoint = (await call('checkpoint', { sandbox })).structuredContent!['checkpoint'];
      await call('edit', { sandbox, file_path: 'a.txt', old_string: 'one', new_string: 'two' });
      const changed = await call('diff', { sandbox, from: checkpoint });
      expect(changed.structuredContent).toMatchObject({ changes: [{ change: 'modified' }], more: false });
      const ran = await call('bash', { sandbox, command: 'cat a.txt; exit 3' });
      expect(ran.structuredContent).toMatchObject({ exit_code: 3, tier: 2 });
      expect(ran.content[0]!.text).toContain('two');
      expect((await call('grep', { sandbox, pattern: 'two' })).content[0]!.text).toContain('a.txt');
      const path = `cay://sandbox/${sandbox}/home/user/a.txt`;
      expect((await client.readResource({ uri: path })).contents[0]).toMatchObject({ text: 'two\n' });
      await call('rollback', { sandbox, to: checkpoint });
      expect((await call('read', { sandbox, file_path: 'a.txt' })).content[0]!.text).toBe('     1\tone\n');
      const missing = await call('read', { sandbox: 'sbx_nothere', file_path: 'a' });
      expect(missing).toMatchObject({ isError: true, _meta: { 'cay/error': { code: 'not_found' } } });
      const forked = await call('fork', { sandbox, count: 2 });
      expect(forked.structuredContent!['sandboxes']).toHaveLength(2);
      expect((await call('sandbox_stop', { sandbox })).structuredContent).toMatchObject({ state: 'stopped' });
    } finally {
      await client.close();
    }
  });

  // Without sessions a client of the older revision cannot cancel a call over HTTP: its notification comes as
  // a request of its own.
  it.each([
    ['HTTP, 2026-07-28', overHttp, MODERN],
    ['stdio, 2025-11-25', overStdio, LEGACY],
  ] as const)('tells progress and ends what is cancelled, over %s', async (_, transport, options) => {
    const client = new Client({ name: 'test', version: '1' }, options);
    await client.connect(transport());
    try {
      const made = (await client.callTool({ name: 'sandbox_create', arguments: {} })) as unknown as Answer;
      const sandbox = String(made.structuredContent!['id']);
      const heard: number[] = [];
      const command = 'for i in 1 2 3 4; do echo $i; sleep 0.3; done';
      await client.callTool(
        { name: 'bash', arguments: { sandbox, command } },
        { onprogress: ({ progress }) => void heard.push(progress) },
      );
      expect(heard.length).toBeGreaterThan(0);
      const stop = new AbortController();
      const endless = client
        .callTool(
          { name: 'bash', arguments: { sandbox, command: 'echo $$ > pid; exec sleep 987' } },
          { signal: stop.signal },
        )
        .catch((error: unknown) => error);
      const running = async () => {
        const { content } = (await client.callTool({
          name: 'bash',
          arguments: { sandbox, command: 'test -s pid && kill -0 $(cat pid) && echo yes || echo no' },
        })) as unknown as Answer;
        return content[0]!.text!.split('\n').at(-1);
      };
      await expect.poll(running, { timeout: 10_000 }).toBe('yes');
      stop.abort();
      await endless;
      await expect.poll(running, { timeout: 10_000 }).toBe('no');
    } finally {
      await client.close();
    }
  });

  it('turns away clients without a key, and pages of other origins', async () => {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    const post = (headers: Record<string, string>) =>
      fetch(new URL('/mcp', server.url), {
        method: 'POST',
        body,
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...headers,
        },
      });
    expect((await post({})).status).toBe(401);
    const authorization = `Bearer ${server.key}`;
    expect((await post({ authorization, origin: 'http://evil.example' })).status).toBe(403);
    expect((await post({ authorization })).status).toBe(200);
  });
});
