/** Going back and sideways through the command line: files under runc, files and memory under gVisor. */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Sandbox, type Snapshot } from '@cay/sdk';
import { cliFileOf, readFileOr, type CliFile } from '../../server/src/cli/lib/settings.ts';
import { openCay, type Cay, type Ran } from '../support/cay.ts';

// Many short processes: a busy machine takes its time for each.
vi.setConfig({ testTimeout: 180_000 });

let cay: Cay;
let dir: string;
beforeAll(async () => {
  cay = await openCay({ CAY_RUNTIME: 'runc' });
  dir = await mkdtemp('/tmp/cay-travel-');
});
afterAll(async () => {
  await cay[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
});

/** Standard output of a verb that succeeds. */
async function out(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await cay.run(...args);
  expect(code, `cay ${args.join(' ')}: ${stderr}`).toBe(0);
  return stdout.trim();
}
/** What is not about the command line itself goes without a process for it. */
function connect(ref: string): Promise<Sandbox> {
  const { url, key } = readFileOr<CliFile>(cliFileOf(cay.dataDir))!;
  return Sandbox.connect(ref, { url, apiKey: key });
}
async function sh(ref: string, line: string): Promise<string> {
  const { exitCode, stdout, stderr } = await (await connect(ref)).exec(line);
  expect(exitCode, stderr).toBe(0);
  return stdout.trim();
}
const shown = async (ref: string) => {
  const { state, pausedAs } = (await connect(ref)).info;
  return pausedAs ?? state;
};

describe('the command line under runc', () => {
  it('takes turns, compares them, and goes back and forth', async () => {
    await out('create', '--name', 'travel');
    await sh('travel', 'echo one > a; echo gone > b');
    expect(await out('turn', 'travel')).toBe('1');
    await sh('travel', 'echo two > a; rm b; mkdir d; echo new > d/c; chmod 600 a');
    expect(await out('turn', 'travel', '--name', 'works')).toBe('2');

    expect((await out('diff', 'travel', '1', '2')).split('\n')).toEqual([
      'M /home/user/a  (mode 644 → 600)',
      'D /home/user/b',
      'A /home/user/d/',
      'A /home/user/d/c',
    ]);
    expect(await out('diff', 'travel', '1', 'works', '--path', '/home/user/d/c')).toBe('A /home/user/d/c');
    expect(await out('diff', 'travel', '1', '2', '--stat')).toContain(
      '3 files changed, 2 insertions(+), 2 deletions(-)',
    );
    expect(await out('diff', 'travel')).toBe('');

    const patch = join(dir, 'patch');
    await out('diff', 'travel', '1', '2', '--output', patch);
    expect(await readFile(patch, 'utf8')).toBe((await cay.run('diff', 'travel', '1', '2', '--patch')).stdout);
    await out('export', 'travel', '--at', '1', '/home/user', '-o', join(dir, 'one.tar'));
    execFileSync('tar', ['-xf', 'one.tar'], { cwd: dir });
    execFileSync('git', ['init', '-q'], { cwd: dir });
    execFileSync('git', ['apply', 'patch'], { cwd: dir });
    expect(await readFile(join(dir, 'home/user/d/c'), 'utf8')).toBe('new\n');

    const undone = await cay.run('rollback', 'travel', '1');
    expect(undone).toMatchObject({ code: 0, stdout: 'travel\n' });
    expect(await sh('travel', 'cat a b')).toBe('one\ngone');
    const [, kept] = /cay rollback travel (snap_\w+)/.exec(undone.stderr)!;
    await out('rollback', 'travel', kept!);
    expect(await sh('travel', 'cat a d/c')).toBe('two\nnew');
    await out('rollback', 'travel', 'works');

    expect((await out('fork', 'travel', '-n', '2', '--name', 'try')).split('\n')).toEqual(['try-1', 'try-2']);
    await sh('try-1', 'echo mine > a');
    expect(await sh('try-2', 'cat a; hostname')).not.toContain('mine');
    const hosts = await Promise.all(['travel', 'try-1', 'try-2'].map((ref) => sh(ref, 'hostname')));
    expect(new Set(hosts).size).toBe(3);
    const tree = await out('tree', 'travel');
    for (const part of ['turn 1', 'turn 2 "works"', 'before a rollback', '◀ travel active', '◀ try-1 active'])
      expect(tree).toContain(part);
    const table = (await out('snapshot', 'ls', 'travel')).split('\n');
    expect(table[0]).toMatch(/^ID +TURN +NAME +HAS +SIZE +CAUSE +SANDBOX +AGE$/);
    expect(table.filter((line) => /works/.test(line))).toHaveLength(1);
  });

  it('moves a snapshot as a file, refuses a damaged one, and makes a template of it', async () => {
    await out('create', '--name', 'origin');
    await sh('origin', 'echo moved > file');
    const snapshot = await out('snapshot', 'take', 'origin', '--name', 'kept', '-l', 'a=b');
    const file = join(dir, 'snapshot.cay');
    await out('snapshot', 'save', snapshot, file);
    const loaded = await out('snapshot', 'load', file, '--name', 'loaded');
    expect(await sh(await out('create', '--snapshot', loaded), 'cat file')).toBe('moved');
    const bytes = await readFile(file);
    bytes[bytes.length >> 1]! ^= 1;
    await writeFile(file, bytes);
    expect(await cay.run('snapshot', 'load', file)).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('damaged') as string,
    });

    expect(await out('template', 'save', 'moved', 'kept', '--sandbox', 'origin')).toBe('moved');
    expect(await out('template', 'ls')).toContain(snapshot);
    expect(await sh(await out('create', '--template', 'moved'), 'cat file')).toBe('moved');
    expect((await cay.run('snapshot', 'rm', snapshot)).stderr).toContain('template "moved" is made of it');
    await out('template', 'rm', 'moved');
  });

  it('pauses, and wakes for a command', async () => {
    await out('create', '--name', 'sleeper');
    expect(await out('pause', 'sleeper')).toBe('sleeper frozen');
    expect(await out('ls')).toMatch(/sleeper +frozen/);
    expect(await sh('sleeper', 'echo awake')).toBe('awake');
    await out('pause', 'sleeper', '--as', 'archived');
    expect(await shown('sleeper')).toBe('archived');
    expect(await out('resume', 'sleeper')).toBe('sleeper');
    expect(await sh('sleeper', 'echo awake')).toBe('awake');
  });

  it('says what is wrong, and what to do', async () => {
    await out('create', '--name', 'asker');
    const refusals: [string[], number, string][] = [
      [['rollback', 'asker', 'nosuch'], 66, 'hint: "cay snapshot ls asker" lists its snapshots'],
      [['diff', 'asker', '9'], 66, 'hint: "cay snapshot ls asker"'],
      [['diff', 'asker'], 64, 'hint: "cay turn"'],
      [['fork', 'asker', '--from', 'nosuch'], 66, 'hint: "cay snapshot ls asker"'],
      [['export', 'asker', '/nosuch', '-o', join(dir, 'x')], 66, 'Cannot archive "nosuch"'],
      [
        ['snapshot', 'take', 'asker', '--memory'],
        70,
        'hint: keep the files alone, or use the runtime "runsc"',
      ],
      [['fork', 'asker', '--memory'], 70, 'runsc'],
      [['pause', 'asker', '--as', 'hibernated'], 70, 'hint:'],
      [['snapshot', 'load', join(dir, 'nosuch')], 66, 'Cannot read'],
      [['template', 'save', 'tpl', 'nosuch', '--sandbox', 'asker'], 66, 'hint: "cay snapshot ls asker"'],
      [['rollback', 'nobody', '1'], 66, 'hint: "cay ls"'],
    ];
    for (const [args, code, text] of refusals) {
      const answer: Ran = await cay.run(...args);
      expect(answer, args.join(' ')).toMatchObject({
        code,
        stdout: '',
        stderr: expect.stringContaining(text) as string,
      });
    }
  });
});

describe('the command line under gVisor', () => {
  const counter = 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n.new; mv /tmp/n.new /tmp/n; sleep 0.05; done';
  const count = async (ref: string) => Number(await sh(ref, 'cat /tmp/n'));
  const counting = async (ref: string) => {
    const before = await count(ref);
    await expect.poll(() => count(ref), { timeout: 30_000 }).toBeGreaterThan(before);
    return before;
  };
  beforeAll(async () => {
    await out('create', '--runtime', 'runsc', '--name', 'counter', '-p', '8000', '--', 'sh', '-c', counter);
    await vi.waitUntil(async () => (await sh('counter', 'cat /tmp/n || true')) !== '', { timeout: 30_000 });
  });

  it('forks a sandbox whose process goes on in the children, each for itself', async () => {
    const reached = await count('counter');
    expect((await out('fork', 'counter', '-n', '2', '--name', 'live')).split('\n')).toEqual([
      'live-1',
      'live-2',
    ]);
    for (const ref of ['live-1', 'live-2', 'counter'])
      expect(await counting(ref)).toBeGreaterThanOrEqual(reached);
    const draw = 'head -c 16 /dev/urandom | od -An -tx1';
    expect(await sh('live-1', draw)).not.toBe(await sh('live-2', draw));
    await out('rm', 'live-1', 'live-2');
  });

  it('starts sandboxes of a template with memory with their process running', async () => {
    const { id, memory } = await cay.json<Snapshot>('snapshot', 'take', 'counter', '--memory');
    expect(memory).toBe(true);
    await out('template', 'save', 'running', id);
    const made = await out('create', '--template', 'running', '--name', 'made', '--runtime', 'runsc');
    expect(made).toMatch(/^sbx_/);
    await counting('made');
    await out('rm', 'made');
  });

  it('hibernates, and a command finds its process going on', async () => {
    expect(await out('pause', 'counter')).toBe('counter hibernated');
    expect(await shown('counter')).toBe('hibernated');
    await counting('counter');
    expect(await shown('counter')).toBe('active');
  });

  it('goes back to what was in memory', async () => {
    await out('snapshot', 'take', 'counter', '--memory', '--name', 'then');
    const then = await count('counter');
    await expect.poll(() => count('counter'), { timeout: 60_000 }).toBeGreaterThan(then + 30);
    await out('rollback', 'counter', 'then', '--memory');
    expect(await counting('counter')).toBeLessThan(then + 30);
  });
});

describe('an idle sandbox', () => {
  it('is frozen by its policy and paused by its timeout, and wakes for a visitor of its preview', async () => {
    await out(
      'create',
      '--name',
      'web',
      '-p',
      '8000',
      '--freeze-after',
      '1s',
      '--',
      'python3',
      '-m',
      'http.server',
      '8000',
    );
    await out('create', '--name', 'timed', '--timeout', '1s');
    await expect.poll(() => shown('web'), { timeout: 20_000, interval: 500 }).toBe('frozen');
    await expect.poll(() => shown('timed'), { timeout: 20_000, interval: 500 }).toBe('frozen');
    const { id, info } = await connect('web');
    const { url } = readFileOr<CliFile>(cliFileOf(cay.dataDir))!;
    const answer = await fetch(`${url}/preview/${id}/8000/`, {
      headers: { 'x-cay-preview-token': info.ports[0]!.token! },
    });
    expect(answer.status).toBe(200);
    expect(await answer.text()).toContain('Directory listing');
    expect(await sh('timed', 'echo awake')).toBe('awake');
  });
});
