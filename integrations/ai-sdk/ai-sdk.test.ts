import { HarnessCapabilityUnsupportedError, HarnessSandboxAuthenticationError } from '@ai-sdk/harness';
import type { Experimental_SandboxSession as SandboxSession } from '@ai-sdk/provider-utils';
import { createJustBashSandbox } from '@ai-sdk/sandbox-just-bash';
import { Sandbox } from '@cay/sdk';
import { generateText, isStepCount, tool } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { serverWithTarget } from '../testing/server-with-target.ts';
import { createCaySandbox } from './index.ts';

let server: LiveServer;
let access: { url: string; apiKey: string };
beforeAll(async () => {
  server = await liveServer({ CAY_RUNTIME: 'runc' });
  access = { url: server.url, apiKey: server.apiKey };
});
afterAll(() => server?.[Symbol.asyncDispose]());

/** A reader of a stream as text. */
const text = async (stream: ReadableStream<Uint8Array> | null) => stream && new Response(stream).text();
/** What a call comes to; the words of a failure are each provider's own. */
const settled = (work: PromiseLike<unknown>) =>
  work.then(
    (value) => ({ value }),
    () => 'rejects',
  );

const CALLS: [string, (session: SandboxSession) => PromiseLike<unknown>][] = [
  ['run', (s) => s.run({ command: 'echo out; echo err >&2; exit 3' })],
  ['env', (s) => s.run({ command: 'printf "%s" "$A"', env: { A: `a "b" $c 'd'\n` } })],
  ['write', (s) => s.writeTextFile({ path: 'd/e/a.txt', content: 'one\ntwo\nthree\n' })],
  ['overwrite', (s) => s.writeTextFile({ path: 'd/e/b.txt', content: 'one' })],
  ['directory', (s) => s.run({ command: 'cat a.txt; basename "$PWD"', workingDirectory: '/home/user/d/e' })],
  [
    'cd holds for one command',
    (s) => s.run({ command: 'cd /tmp' }).then(() => s.readTextFile({ path: 'd/e/b.txt' })),
  ],
  ['lines', (s) => s.readTextFile({ path: 'd/e/a.txt', startLine: 2, endLine: 2 })],
  ['lines past the end', (s) => s.readTextFile({ path: 'd/e/a.txt', startLine: 3, endLine: 99 })],
  ['latin1', (s) => s.writeTextFile({ path: 'l', content: 'é', encoding: 'latin1' })],
  ['latin1 bytes', (s) => s.readBinaryFile({ path: 'l' }).then((bytes) => [...bytes!])],
  ['latin1 text', (s) => s.readTextFile({ path: 'l', encoding: 'latin1' })],
  ['bytes', (s) => s.writeBinaryFile({ path: 'x/y', content: new Uint8Array([0, 255, 10]) })],
  ['bytes again', (s) => s.readBinaryFile({ path: 'x/y' }).then((bytes) => [...bytes!])],
  ['stream', (s) => s.writeFile({ path: 'x/z', content: new Response('streamed').body! })],
  ['stream again', (s) => s.readFile({ path: 'x/z' }).then(text)],
  ['no file', (s) => s.readFile({ path: 'none' })],
  ['no file as bytes', (s) => s.readBinaryFile({ path: 'none/a' })],
  ['no file as text', (s) => s.readTextFile({ path: '/none' })],
  [
    'an empty file',
    (s) => s.writeTextFile({ path: 'empty', content: '' }).then(() => s.readTextFile({ path: 'empty' })),
  ],
  ['no such program', (s) => s.run({ command: 'no-such-program 2>/dev/null' })],
  [
    'spawn',
    (s) =>
      s.spawn({ command: 'echo a; echo b >&2; exit 4' }).then(async (process) => ({
        stdout: await text(process.stdout),
        stderr: await text(process.stderr),
        ...(await process.wait()),
      })),
  ],
  ['aborted before', (s) => s.run({ command: 'echo a', abortSignal: AbortSignal.abort() })],
];

describe('the AI SDK', () => {
  it('answers as the sandbox of the framework does', async () => {
    // Of the newest methods, which it does not have, no call is made.
    const reference = (await createJustBashSandbox().createSession()) as unknown as SandboxSession;
    const session = await createCaySandbox(access).createSession();
    const [wanted, got]: Record<string, unknown>[] = [{}, {}];
    for (const [name, call] of CALLS) {
      wanted![name] = await settled(call(reference));
      got![name] = await settled(call(session));
    }
    await session.destroy();
    expect(got).toEqual(wanted);
  });

  it('has what the framework asks for beyond its own sandbox', async () => {
    const session = await createCaySandbox(access).createSession();
    const tools = session.restricted();
    expect(Object.keys(tools)).not.toContain('destroy');
    await tools.run({ command: 'mkdir d && ln -s d l && echo hello > d/f && ln -s f d/link && mkfifo p' });
    expect((await tools.run({ command: 'cat f', workingDirectory: 'd' })).stdout).toBe('hello\n');
    expect(await tools.stat({ path: 'd/link' })).toEqual({ type: 'file', size: 6 });
    expect(await tools.stat({ path: 'l' })).toMatchObject({ type: 'directory' });
    expect(await tools.stat({ path: 'p' })).toMatchObject({ type: 'other' });
    expect(await tools.stat({ path: 'none' })).toBeNull();
    await expect(tools.writeTextFile({ path: 'd', content: '' })).rejects.toThrow('directory');
    await expect(tools.readTextFile({ path: 'd' })).rejects.toThrow('directory');
    expect(
      (await tools.listDirectory({ path: 'd' }))!.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
    ).toEqual([
      { name: 'f', type: 'file' },
      { name: 'link', type: 'symlink' },
    ]);
    expect(await tools.listDirectory({ path: 'none' })).toBeNull();
    await expect(tools.listDirectory({ path: 'd/f' })).rejects.toThrow();
    expect(await tools.deleteFile({ path: 'd/link' })).toBe(true);
    expect(await tools.deleteFile({ path: 'd/link' })).toBe(false);
    expect(await tools.readTextFile({ path: 'd/f' })).toBe('hello\n');
    await expect(tools.deleteFile({ path: 'd' })).rejects.toThrow('directory');
    const cat = await tools.spawn({ command: 'cat', stdin: true });
    const writer = cat.stdin.getWriter();
    await writer.write(new TextEncoder().encode('typed'));
    await writer.close();
    expect(await text(cat.stdout)).toBe('typed');
    expect(await cat.wait()).toEqual({ exitCode: 0 });
    await session.destroy();
  });

  it('an abort ends the processes inside', async () => {
    const session = await createCaySandbox(access).createSession();
    const reason = new Error('enough');
    for (const start of ['run', 'spawn'] as const) {
      const abort = new AbortController();
      const command = `(sleep 987 & wait) & wait`;
      const over =
        start === 'run'
          ? session.run({ command, abortSignal: abort.signal })
          : session.spawn({ command, abortSignal: abort.signal }).then((process) => process.wait());
      const running = () => session.run({ command: 'pgrep -cx sleep' }).then(({ stdout }) => Number(stdout));
      await expect.poll(running).toBeGreaterThan(0);
      abort.abort(reason);
      await expect(over, start).rejects.toBe(reason);
      await expect.poll(running).toBe(0);
    }
    const process = await session.spawn({ command: 'sleep 987' });
    await process.kill();
    await process.kill();
    expect((await process.wait()).exitCode).toBe(137);
    await session.destroy();
  });

  it('prepares an identity once, and gives every session a sandbox of its own', async () => {
    let prepared = 0;
    const identity = `identity-${Date.now()}`;
    const create = (sessionId?: string) =>
      createCaySandbox(access).createSession({
        sessionId,
        identity,
        async onFirstCreate(session) {
          prepared++;
          await session.writeTextFile({ path: 'tool', content: 'installed' });
        },
      });
    // Two programs, which know nothing of each other.
    const [one, two] = await Promise.all([create('a/b'), create('c')]);
    expect(prepared).toBe(1);
    await one.writeTextFile({ path: 'tool', content: 'changed' });
    expect(await two.readTextFile({ path: 'tool' })).toBe('installed');
    expect(await (await create('a/b')).readTextFile({ path: 'tool' })).toBe('changed');
    expect(prepared).toBe(1);
    await one.stop();
    await one.stop();
    const resumed = await createCaySandbox(access).resumeSession({ sessionId: 'a/b' });
    expect(resumed.id).toBe(one.id);
    expect(await resumed.readTextFile({ path: 'tool' })).toBe('changed');
    await resumed.destroy();
    await one.stop();
    await one.destroy();
    await two.stop();
    await two.destroy();
    await expect(createCaySandbox(access).resumeSession({ sessionId: 'a/b' })).rejects.toMatchObject({
      code: 'not_found',
    });
    const left = [];
    for await (const { info } of Sandbox.list(access)) left.push(info.name);
    expect(left).toEqual([]);
  });

  it('a preparation that fails leaves nothing, and is tried again', async () => {
    const options = (fails: boolean) => ({
      identity: `failing-${server.url}`,
      async onFirstCreate() {
        if (fails) throw new Error('no disk');
      },
    });
    await expect(createCaySandbox(access).createSession(options(true))).rejects.toThrow('no disk');
    const session = await createCaySandbox(access).createSession(options(false));
    await session.destroy();
    const left = [];
    for await (const { id } of Sandbox.list(access)) left.push(id);
    expect(left).toEqual([]);
  });

  it('resolves its ports', async () => {
    const session = await createCaySandbox({ ...access, ports: [8000] }).createSession();
    expect(session.ports).toEqual([8000]);
    await session.writeTextFile({ path: 'index.html', content: 'from inside' });
    await session.spawn({ command: 'python3 -m http.server 8000' });
    const { url, headers } = await session.getPortEndpoint({ port: 8000, protocol: 'http' });
    await expect.poll(async () => (await fetch(`${url}?a=1`, { headers })).text()).toBe('from inside');
    expect((await fetch(url)).status).toBe(404);
    expect((await session.getPortEndpoint({ port: 8000, protocol: 'ws' })).url).toMatch(/^ws:/);
    await expect(session.getPortEndpoint({ port: 9000 })).rejects.toThrow(HarnessCapabilityUnsupportedError);
    await session.setPorts!([9000]);
    expect(session.ports).toEqual([9000]);
    expect((await fetch(url, { headers })).status).toBe(404);
    await session.destroy();
  });

  it('says what is wrong with a key as the framework does', async () => {
    const failed = createCaySandbox({ url: server.url, apiKey: 'e2b_wrong' }).createSession();
    const error: unknown = await failed.catch((thrown: unknown) => thrown);
    expect(HarnessSandboxAuthenticationError.isInstance(error) && error.sandboxProviderId).toBe('cay');
  });

  it('carries an agent whose model is a script', async () => {
    const session = await createCaySandbox(access).createSession();
    const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } } as never;
    const model = new MockLanguageModelV4({
      doGenerate: [
        {
          content: [
            {
              type: 'tool-call',
              toolCallId: 'c1',
              toolName: 'bash',
              input: '{"command":"echo $((6 * 7)) | tee a"}',
            },
          ],
          finishReason: { unified: 'tool-calls', raw: undefined },
          usage,
          warnings: [],
        },
        {
          content: [{ type: 'text', text: 'It is 42' }],
          finishReason: { unified: 'stop', raw: undefined },
          usage,
          warnings: [],
        },
      ],
    });
    const bash = tool({
      description: 'Runs a command',
      inputSchema: z.object({ command: z.string() }),
      execute: ({ command }, { experimental_sandbox: sandbox }) => sandbox!.run({ command }),
    });
    const result = await generateText({
      model,
      tools: { bash },
      prompt: 'What is 6 * 7?',
      experimental_sandbox: session.restricted(),
      stopWhen: isStepCount(3),
    });
    expect(result.text).toBe('It is 42');
    expect(JSON.stringify(model.doGenerateCalls[1]!.prompt)).toContain('42\\n');
    expect(await session.readTextFile({ path: 'a' })).toBe('42\n');
    await session.destroy();
  });
});

describe('the network of the AI SDK', () => {
  it('is a policy that changes at once, with credentials that stay outside', async () => {
    await using outside = await serverWithTarget('runc');
    const { url, apiKey, target, seen } = outside;
    const session = await createCaySandbox({ url, apiKey, network: 'none' }).createSession();
    const ask = async (path = '/v1/messages', method = 'GET', host = target) =>
      (
        await session.run({
          command: `curl -sk -X ${method} -o answer -w '%{http_code}' -H 'x-api-key: placeholder' https://${host}${path}; cat answer`,
        })
      ).stdout;
    expect(await ask()).not.toMatch(/^200/);
    await session.setNetworkPolicy!({ mode: 'custom', allowedHosts: [target], allowedCIDRs: [] });
    expect(await ask()).toMatch(/^200/);
    expect(seen.at(-1)!.headers['x-api-key']).toBe('placeholder');

    const rule = (value: string) => ({
      match: { host: target, path: { startsWith: '/v1/' }, method: ['GET'] },
      transform: { headers: { 'x-api-key': value } },
    });
    await session.setRequestTransformations!([rule('value-of-the-key')]);
    const answer = await ask();
    expect(seen.at(-1)!.headers['x-api-key']).toBe('value-of-the-key');
    expect(answer).toMatch(/^200/);
    expect(answer).not.toContain('value-of-the-key');
    for (const [path, method] of [
      ['/v10/messages', 'GET'],
      ['/v1/messages', 'POST'],
    ] as const) {
      await ask(path, method);
      expect(seen.at(-1)!.headers['x-api-key'], `${method} ${path}`).toBe('placeholder');
    }
    await session.addRequestTransformations!([
      { match: { host: target }, transform: { headers: { 'x-more': 'more' } } },
    ]);
    await session.addRequestTransformations!([rule('another-key')]);
    await ask();
    expect(seen.at(-1)!.headers).toMatchObject({ 'x-api-key': 'another-key', 'x-more': 'more' });
    const { stdout } = await session.run({ command: 'env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null' });
    expect(stdout).not.toContain('another-key');

    await session.setNetworkPolicy!({ mode: 'deny-all' });
    const before = seen.length;
    expect(await ask()).not.toMatch(/^200/);
    expect(seen.length).toBe(before);
    await session.setNetworkPolicy!({ mode: 'custom', allowedHosts: ['*.example.org:*'] });
    await ask();
    expect(seen.at(-1)!.headers['x-api-key']).toBe('another-key');

    for (const match of [
      { host: target, path: { exact: '/v1' } },
      { host: target, path: { regex: '.*' } },
      { host: target, queryString: [{ key: { exact: 'a' } }] },
      { host: 'elsewhere.example.com' },
    ])
      await expect(
        session.setRequestTransformations!([{ match, transform: { headers: { a: 'b' } } }]),
      ).rejects.toThrow(HarnessCapabilityUnsupportedError);
    await session.destroy();
    const secrets = await fetch(`${url}/v1/secrets`, { headers: { authorization: `Bearer ${apiKey}` } });
    expect(await secrets.json()).toEqual({ secrets: [] });
  });
});
