import { Runner } from '@openai/agents';
import { assistantMessage, functionCall, ScriptedModel } from '@openai/agents-core/testing';
import { Manifest, SandboxAgent, type SandboxSession } from '@openai/agents/sandbox';
import { UnixLocalSandboxClient } from '@openai/agents/sandbox/local';
import { Sandbox } from '@cay/sdk';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { visit } from '../../test/e2b/e2b-platform.ts';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { CaySandboxClient } from './index.ts';

let server: LiveServer;
let access: { url: string; apiKey: string };
let local: string;
beforeAll(async () => {
  server = await liveServer({ CAY_RUNTIME: 'runc' });
  access = { url: server.url, apiKey: server.apiKey };
  local = mkdtempSync('/tmp/cay-agents-');
  mkdirSync(`${local}/tree/deep`, { recursive: true });
  writeFileSync(`${local}/tree/deep/b.txt`, 'b');
  writeFileSync(`${local}/one.txt`, 'one');
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  rmSync(local, { recursive: true, force: true });
});

const manifest = () =>
  new Manifest({
    entries: {
      'notes/a.txt': { type: 'file', content: 'hello\n' },
      bin: {
        type: 'dir',
        children: { run: { type: 'file', content: 'echo ran', permissions: 0o755 } },
      },
      'one.txt': { type: 'local_file', src: `${local}/one.txt` },
      tree: { type: 'local_dir', src: `${local}/tree` },
      'scratch.txt': { type: 'file', content: 'not kept', ephemeral: true },
    },
    environment: { WHO: 'me' },
    extraPathGrants: [{ path: local }],
  });

/** What differs from run to run, or is a path of the local sandbox. */
const told = (output: string) =>
  output
    .replace(/Chunk ID: \w+/, 'Chunk ID: X')
    .replace(/Wall time: [\d.]+ seconds/, 'Wall time: T')
    .replace(/session ID \d+/g, 'session ID N');
const settled = (work: Promise<unknown>) =>
  work.then(
    (value) => ({ value: value instanceof Uint8Array ? Buffer.from(value).toString() : value }),
    () => 'rejects',
  );
const sorted = (entries: { name: string }[]) => entries.toSorted((a, b) => (a.name < b.name ? -1 : 1));

const CALLS: [string, (session: SandboxSession) => Promise<unknown>][] = [
  [
    'manifest',
    (s) =>
      s.execCommand!({ cmd: 'cat notes/a.txt one.txt tree/deep/b.txt; ./bin/run; echo "$WHO"' }).then(told),
  ],
  ['exit code', (s) => s.execCommand!({ cmd: 'echo out; exit 3' }).then(told)],
  ['stderr', (s) => s.exec!({ cmd: 'echo err >&2' }).then(({ stderr, exitCode }) => [stderr, exitCode])],
  ['workdir', (s) => s.execCommand!({ cmd: 'ls', workdir: 'notes' }).then(told)],
  ['truncated', (s) => s.execCommand!({ cmd: 'seq 2000', maxOutputTokens: 50 }).then(told)],
  ['read', (s) => s.readFile!({ path: 'notes/a.txt' })],
  ['read some', (s) => s.readFile!({ path: 'notes/a.txt', maxBytes: 2 })],
  ['read nothing', (s) => s.readFile!({ path: 'none' })],
  ['read outside', (s) => s.readFile!({ path: '../../etc/passwd' })],
  ['list', (s) => s.listDir!({ path: '.' }).then(sorted)],
  ['list below', (s) => s.listDir!({ path: 'tree' }).then(sorted)],
  ['exists', (s) => Promise.all(['notes', 'notes/a.txt', 'none'].map((path) => s.pathExists!(path)))],
  ['directory', (s) => Promise.all(['notes', 'notes/a.txt', 'none'].map((path) => s.directoryExists!(path)))],
  [
    'create',
    (s) =>
      Promise.resolve(
        s.createEditor!().createFile({ type: 'create_file', path: 'new/c.txt', diff: '+one\n+two' }),
      ),
  ],
  [
    'create again',
    (s) =>
      Promise.resolve(s.createEditor!().createFile({ type: 'create_file', path: 'new/c.txt', diff: '+one' })),
  ],
  [
    'update',
    (s) =>
      Promise.resolve(
        s.createEditor!().updateFile({
          type: 'update_file',
          path: 'new/c.txt',
          diff: '@@\n one\n-two\n+three',
        }),
      ),
  ],
  ['updated', (s) => s.readFile!({ path: 'new/c.txt' })],
  [
    'a diff that does not fit',
    (s) =>
      Promise.resolve(
        s.createEditor!().updateFile({ type: 'update_file', path: 'new/c.txt', diff: '@@\n-ten\n+three' }),
      ),
  ],
  [
    'delete',
    (s) => Promise.resolve(s.createEditor!().deleteFile({ type: 'delete_file', path: 'new/c.txt' })),
  ],
  ['deleted', (s) => s.pathExists!('new/c.txt')],
  [
    'edit outside',
    (s) => Promise.resolve(s.createEditor!().createFile({ type: 'create_file', path: '/etc/x', diff: '+x' })),
  ],
  ['no such process', (s) => s.writeStdin!({ sessionId: 4711, chars: 'a' }).then(told)],
  [
    'a process that goes on',
    async (s) => {
      const first = await s.execCommand!({ cmd: 'read line; echo "got $line"; exit 5', yieldTimeMs: 300 });
      const sessionId = Number(/session ID (\d+)/.exec(first)![1]);
      return [first, await s.writeStdin!({ sessionId, chars: 'typed\n', yieldTimeMs: 5000 })].map(told);
    },
  ],
  [
    'an interrupt',
    async (s) => {
      const first = await s.execCommand!({
        cmd: 'trap "echo stopped; exit 7" INT; while :; do sleep 0.1; done',
        yieldTimeMs: 500,
      });
      const sessionId = Number(/session ID (\d+)/.exec(first)![1]);
      return told(await s.writeStdin!({ sessionId, chars: '\u0003', yieldTimeMs: 5000 }));
    },
  ],
];

describe('the OpenAI Agents SDK', () => {
  it('answers as the local sandbox of the framework does', async () => {
    const reference = await new UnixLocalSandboxClient().create({ manifest: manifest() });
    const session = await new CaySandboxClient(access).create({ manifest: manifest() });
    const [wanted, got]: Record<string, unknown>[] = [{}, {}];
    for (const [name, call] of CALLS) {
      wanted![name] = await settled(call(reference));
      got![name] = await settled(call(session));
    }
    await reference.close();
    await session.close();
    expect(got).toEqual(wanted);
    expect(await session.running()).toBe(false);
  });

  it('carries a scripted agent from end to end, as the local sandbox does', async () => {
    const seen = [];
    for (const client of [new UnixLocalSandboxClient(), new CaySandboxClient(access)]) {
      const model = new ScriptedModel([
        [
          functionCall(
            'exec_command',
            { cmd: 'echo $((6 * 7)) > answer.txt && cat answer.txt' },
            { callId: 'c1' },
          ),
        ],
        [functionCall('exec_command', { cmd: 'cat notes/a.txt; exit 2' }, { callId: 'c2' })],
        [assistantMessage('It is 42')],
      ]);
      const agent = new SandboxAgent({
        name: 'worker',
        instructions: 'Compute.',
        model,
        defaultManifest: manifest(),
      });
      const result = await new Runner({ tracingDisabled: true }).run(agent, 'What is 6 * 7?', {
        sandbox: { client },
      });
      expect(result.finalOutput).toBe('It is 42');
      const outputs = (model.lastCall!.request.input as { type: string; output?: { text?: string } }[])
        .filter(({ type }) => type === 'function_call_result')
        .map(({ output }) => told(JSON.stringify(output)));
      expect(outputs).toHaveLength(2);
      seen.push(outputs);
    }
    expect(seen[1]).toEqual(seen[0]);
    const left = [];
    for await (const { id } of Sandbox.list(access)) left.push(id);
    expect(left).toEqual([]);
  });

  it('has terminals', async () => {
    const session = await new CaySandboxClient(access).create();
    const first = await session.execCommand({ cmd: 'stty size; cat', tty: true, yieldTimeMs: 500 });
    expect(first).toContain('24 80');
    const sessionId = Number(/session ID (\d+)/.exec(first)![1]);
    expect(await session.writeStdin({ sessionId, chars: '\u0003', yieldTimeMs: 3000 })).toContain(
      'exited with code 130',
    );
    await session.close();
  });

  it('goes on in another program, with the process that runs', async () => {
    const client = new CaySandboxClient(access);
    const session = await client.create({ manifest: manifest() });
    await session.createEditor().createFile({ type: 'create_file', path: 'kept.txt', diff: '+kept' });
    const first = await session.execCommand({ cmd: 'read line; echo "got $line"', yieldTimeMs: 200 });
    const sessionId = Number(/session ID (\d+)/.exec(first)![1]);
    const state = JSON.parse(JSON.stringify(await client.serializeSessionState(session.state))) as Record<
      string,
      unknown
    >;
    await session.shutdown({ reason: 'cleanup', preserveOwnedSessions: true });
    await session.delete({ reason: 'cleanup', preserveOwnedSessions: true });

    const another = new CaySandboxClient(access);
    const resumed = await another.resume(await another.deserializeSessionState(state));
    expect(Buffer.from(await resumed.readFile({ path: 'kept.txt' })).toString()).toBe('kept');
    expect(await resumed.execCommand({ cmd: 'echo "$WHO"' })).toContain('me');
    expect(await resumed.writeStdin({ sessionId, chars: 'late\n', yieldTimeMs: 5000 })).toContain('got late');
    await another.delete(resumed.state);
    await another.delete(resumed.state);
    await expect(another.resume(resumed.state)).rejects.toThrow('no');
  });

  it.for(['tar', 'snapshot'] as const)('keeps a workspace as %s', async (workspacePersistence) => {
    const client = new CaySandboxClient({ ...access, workspacePersistence });
    const session = await client.create({
      manifest: new Manifest({
        entries: { 'a.txt': { type: 'file', content: 'a' }, 'b.txt': { type: 'file', content: 'b' } },
      }),
    });
    const kept = await session.persistWorkspace();
    await session.execCommand({ cmd: 'echo changed > a.txt' });
    const other = await client.create();
    await other.hydrateWorkspace(kept);
    expect(Buffer.from(await other.readFile({ path: 'a.txt' })).toString()).toBe('a');
    if (workspacePersistence === 'tar')
      for (const limits of [{ maxInputBytes: 10 }, { maxMembers: 1 }, { maxExtractedBytes: 1 }])
        await expect(other.hydrateWorkspace(kept, { archiveLimits: limits })).rejects.toThrow('more than');
    await other.close();
    await session.close();
    const left = [];
    for await (const { id } of Sandbox.list(access)) left.push(id);
    expect(left).toEqual([]);
  });

  it('leaves what is ephemeral out of a kept workspace', async () => {
    const client = new CaySandboxClient(access);
    const session = await client.create({ manifest: manifest() });
    const other = await client.create();
    await other.hydrateWorkspace(await session.persistWorkspace());
    expect(await other.pathExists('scratch.txt')).toBe(false);
    expect(await other.pathExists('tree/deep/b.txt')).toBe(true);
    await other.close();
    await session.close();
  });

  it('resolves ports, and refuses what it cannot do', async () => {
    const client = new CaySandboxClient({ ...access, exposedPorts: [8000] });
    const session = await client.create();
    await session.execCommand({ cmd: 'python3 -m http.server 8000', yieldTimeMs: 100 });
    const { host, port, query } = await session.resolveExposedPort(8000);
    // Its host is one that no name service here knows.
    await expect
      .poll(async () => (await visit(server.url, `${host}:${port}`, `/?${query}`)).status)
      .toBeLessThan(400);
    await expect(session.resolveExposedPort(9000)).rejects.toThrow('exposedPorts');
    await expect(
      session.materializeEntry({ path: 'x', entry: { type: 'local_file', src: '/etc/hostname' } }),
    ).rejects.toThrow('extraPathGrants');
    await session.close();
    await expect(
      client.create({ manifest: new Manifest({ entries: { b: { type: 's3_mount', bucket: 'b' } } }) }),
    ).rejects.toThrow('s3_mount');
    await expect(new CaySandboxClient({ ...access, template: 'no-such' }).create()).rejects.toThrow(
      'no-such',
    );
  });
});
