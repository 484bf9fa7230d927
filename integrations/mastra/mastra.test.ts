import { LocalSandbox, Workspace, type MastraSandbox } from '@mastra/core/workspace';
import { Sandbox } from '@cay/sdk';
import { mkdtempSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { CaySandbox } from './index.ts';

let server: LiveServer;
let access: { url: string; apiKey: string };
let root: string;
beforeAll(async () => {
  server = await liveServer({ CAY_RUNTIME: 'runc' });
  access = { url: server.url, apiKey: server.apiKey };
  root = mkdtempSync('/tmp/cay-mastra-');
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  rmSync(root, { recursive: true, force: true });
});

const CALLS: [string, (sandbox: MastraSandbox) => Promise<unknown>][] = [
  ['arguments', (s) => s.executeCommand!('echo', ['a b', "c'd", '$HOME'])],
  ['a line', (s) => s.executeCommand!('echo one | tr a-z A-Z; echo err >&2; exit 3')],
  ['environment', (s) => s.executeCommand!('echo "$A $B"', [], { env: { A: 'a', B: undefined } })],
  ['no input', (s) => s.executeCommand!('cat', [])],
  [
    'a timeout',
    (s) =>
      s.executeCommand!('sleep 30', [], { timeout: 300 }).then(({ success, timedOut }) => ({
        success,
        timedOut,
      })),
  ],
  [
    'a process',
    async (s) => {
      const handle = await s.processes!.spawn('read line; echo "got $line"; cat');
      await handle.sendStdin('one\n');
      await handle.sendStdin('two\n');
      await handle.closeStdin();
      return handle.wait();
    },
  ],
  [
    'a kill',
    async (s) => {
      const handle = await s.processes!.spawn('sleep 30');
      return [await handle.kill(), (await handle.wait()).success, await handle.kill()];
    },
  ],
  ['an unknown process', async (s) => [await s.processes!.get('nope'), await s.processes!.kill('nope')]],
];

/** What differs from run to run. */
const told = (value: unknown) =>
  JSON.parse(
    JSON.stringify(value ?? null, (key, entry: unknown) =>
      key === 'executionTimeMs' || key === 'command' || key === 'args' || key === 'killed'
        ? undefined
        : entry,
    ),
  ) as unknown;

describe('Mastra', () => {
  it('answers as the local sandbox of the framework does', async () => {
    const reference = new LocalSandbox({ workingDirectory: root, env: { PATH: process.env['PATH'] } });
    const sandbox = new CaySandbox(access);
    const [wanted, got]: Record<string, unknown>[] = [{}, {}];
    for (const [name, call] of CALLS) {
      wanted![name] = told(await call(reference));
      got![name] = told(await call(sandbox));
    }
    await sandbox._destroy();
    expect(got).toEqual(wanted);
  });

  it('is the sandbox of its id, in whatever program, and comes back after it was killed', async () => {
    const outcomes: unknown[] = [];
    const open = () =>
      new CaySandbox({ ...access, id: 'project/1', onStart: ({ outcome }) => void outcomes.push(outcome) });
    const first = open();
    const workspace = new Workspace({ sandbox: first });
    await workspace.init();
    await first.writeFiles([{ path: 'a/b.sh', content: 'echo run', mode: 0o700 }]);
    const running = await first.processes.spawn('read line; echo "got $line"');
    await first._stop();
    const second = open();
    expect((await second.executeCommand!('a/b.sh')).stdout).toBe('run\n');
    const again = await second.processes.get(running.pid);
    await again!.sendStdin('late\n');
    expect((await again!.wait()).stdout).toBe('got late\n');
    expect(outcomes).toEqual(['created', 'connected']);
    await (await Sandbox.connect(second.sandbox.id, access)).kill();
    expect((await second.executeCommand!('echo', ['new'])).stdout).toBe('new\n');
    expect(outcomes).toEqual(['created', 'connected', 'created']);
    await second._destroy();
    await first._destroy();
  });

  it('writes checkpoints, and starts clones from them', async () => {
    const base = new CaySandbox({ ...access, id: 'base' });
    await base.executeCommand!('echo base > state');
    await base.snapshot();
    const clone = base.clone({
      id: 'session',
      checkpointName: 'session',
      seedCheckpointName: 'base',
      env: { WHO: 'me' },
    });
    expect((await clone.executeCommand!('cat state; echo "$WHO"')).stdout).toBe('base\nme\n');
    await clone.executeCommand!('echo session > state');
    await clone.snapshot();
    await clone.executeCommand!('echo later > state');
    await clone._destroy();
    const revived = base.clone({ id: 'session', checkpointName: 'session', seedCheckpointName: 'base' });
    expect((await revived.executeCommand!('cat state')).stdout).toBe('session\n');
    expect((await base.executeCommand!('cat state')).stdout).toBe('base\n');
    await revived._destroy();
    await base._destroy();
    const left = [];
    for await (const { id } of Sandbox.list(access)) left.push(id);
    expect(left).toEqual([]);
  });

  it('says where its ports are, and what it is', async () => {
    const sandbox = new CaySandbox({ ...access, workingDirectory: '/tmp' });
    expect(await sandbox.networking.getPortUrl(8000)).toBeNull();
    await sandbox._start();
    expect(await sandbox.networking.getPortUrl(8000)).toMatch(/^http.*cay_token=/);
    expect(await sandbox.getInfo()).toMatchObject({
      provider: 'cay',
      status: 'running',
      metadata: { runtime: 'runc' },
    });
    expect((await sandbox.executeCommand!('pwd')).stdout).toBe('/tmp\n');
    await sandbox._destroy();
    await expect(new CaySandbox({ ...access, template: 'no-such' })._start()).rejects.toThrow('no-such');
  });
});
