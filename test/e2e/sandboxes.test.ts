import { get } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { CayEvent, CommandInfo, Key, Sandbox, Stats } from '@cay/sdk';
import { ended, openCay, type Cay } from '../support/cay.ts';

let cay: Cay;
beforeAll(async () => {
  cay = await openCay({ CAY_RUNTIME: 'runc' });
});
afterEach(() => cay.run('rm', '--all', '--yes'));
afterAll(() => cay[Symbol.asyncDispose]());

async function create(...flags: string[]): Promise<string> {
  const { code, stdout, stderr } = await cay.run('create', ...flags);
  // A start of the server may be announced on standard error.
  expect(code, stderr).toBe(0);
  return stdout.trim();
}

/** By the name of the preview, which not every resolver knows. */
function statusOf(url: URL, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    get(url, { headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    }).on('error', reject);
  });
}

describe('sandboxes', () => {
  it('are named by id, by name and by the beginning of an id', async () => {
    const id = await create('--name', 'first', '-l', 'team=a');
    for (const ref of [id, 'first', id.slice(0, 12), id.slice(4, 12)]) {
      expect(await cay.run('exec', ref, 'echo', 'here')).toMatchObject({ code: 0, stdout: 'here\n' });
    }
    await cay.run('rm', 'first');
  });

  it('are not named by less than four characters, and not removed by a beginning', async () => {
    const id = await create();
    for (const ref of ['', ' ', 's', 'sbx_', id.slice(0, 7)]) {
      const { code, stderr } = await cay.run('rm', ref);
      expect([64, 66], stderr).toContain(code);
      expect(stderr).toContain('hint:');
      expect((await cay.run('inspect', ref)).code).not.toBe(0);
    }
    const refused = await cay.run('rm', id.slice(0, 12));
    expect(refused).toMatchObject({
      code: 66,
      stderr: expect.stringContaining(`the whole id: ${id}`) as string,
    });
    expect((await cay.run('ls', '-q')).stdout).toBe(`${id}\n`);
    expect((await cay.run('rm', id)).stdout).toBe(`${id}\n`);
  });

  it('are all removed only when that is confirmed', async () => {
    const id = await create('--name', 'stays');
    expect(await cay.run('rm', '--all')).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(
        /Remove the only sandbox of http:.* \(stays\)\?\nhint: give --yes/,
      ) as string,
    });
    expect((await cay.run('ls', '-q')).stdout).toBe(`${id}\n`);
    expect((await cay.run('rm', '--all', '--yes')).stdout).toBe('stays\n');
  });

  it('have one name for their state in every verb, and say what happens when', async () => {
    await create('--name', 'rests', '--timeout', '2h', '--on-timeout', 'stop');
    expect((await cay.run('inspect', 'rests')).stdout).toMatch(/^timeout +stop after 2h \(stop in 119m\)$/m);
    expect((await cay.run('ls')).stdout).toMatch(/EXPIRES[\s\S]*stop in 1\d\dm/);
    const [, state] = (await cay.run('pause', 'rests')).stdout.trim().split(' ');
    expect((await cay.run('ls')).stdout).toContain(` ${state} `);
    const { stdout } = await cay.run('inspect', 'rests');
    expect(stdout).toMatch(new RegExp(`^state +${state}\nsince +\\d+s ago, on request$`, 'm'));
    expect((await cay.run('ls', '-q', '--state', state!)).stdout).toMatch(/^sbx_/);
    expect((await cay.run('ls', '-q', '--state', 'archived')).stdout).toBe('');
    expect((await cay.run('ls', '--state', 'asleep')).stderr).toContain('States are creating, active');
  });

  it('are changed while they run', async () => {
    await create('--name', 'changes', '-l', 'a=b', '--timeout', '1h');
    expect(
      await cay.run('update', 'changes', '-m', '1g', '-l', 'c=d', '--rm-label', 'a', '--timeout', 'none'),
    ).toMatchObject({ code: 0, stdout: 'changes\n' });
    expect(await cay.json<Sandbox['info']>('inspect', 'changes')).toMatchObject({
      labels: { c: 'd' },
      timeoutMs: null,
      limits: { memoryBytes: 1024 ** 3 },
    });
    expect((await cay.run('update', 'changes')).code).toBe(64);
  });

  it('have ports with addresses that open', async () => {
    await create('--name', 'web');
    await cay.run('exec', '-d', 'web', '--', 'python3', '-m', 'http.server', '8000', '--bind', '127.0.0.1');
    const { code, stdout } = await cay.run('expose', 'web', '8000');
    expect(code).toBe(0);
    const url = new URL(stdout.trim());
    const host = url.host;
    url.hostname = '127.0.0.1';
    await expect.poll(() => statusOf(url, host), { timeout: 10_000 }).toBeLessThan(400);
    expect((await cay.run('inspect', 'web')).stdout).toContain('cay_token=');
    expect((await cay.run('port', 'ls', 'web')).stdout).toMatch(/^8000 +yes +private +no +http/m);
    expect((await cay.run('port', 'rm', 'web', '8000')).stdout).toBe('8000\n');
    expect((await cay.run('port', 'ls', 'web')).stdout).toMatch(/^8000 +yes +no +no +-$/m);
  });

  it('have ports of the machine that lead to them', async () => {
    await create('--name', 'open', '--publish', '8000');
    await cay.run('exec', '-d', 'open', '--', 'python3', '-m', 'http.server', '8000', '--bind', '127.0.0.1');
    const status = async (address: string) => (await fetch(`http://${address}/`)).status;
    const listed = /^8000 +\w+ +no +(127\.0\.0\.1:\d+) +-$/m.exec(
      (await cay.run('port', 'ls', 'open')).stdout,
    );
    await expect.poll(() => status(listed![1]!).catch(() => 0), { timeout: 30_000 }).toBe(200);
    const second = (await cay.run('port', 'publish', 'open', '8000')).stdout.trim();
    expect(await status(second)).toBe(200);
    expect(await cay.run('port', 'unpublish', 'open', second.split(':')[1]!)).toMatchObject({ code: 0 });
    await expect(status(second)).rejects.toThrow();
    expect(await cay.run('port', 'publish', 'open', '80:x')).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('"80:x" is no pair of ports') as string,
    });
  });

  it('of one named network reach each other by name', async () => {
    await create('--name', 'peer-a', '--join', 'team');
    await create('--name', 'peer-b');
    await cay.run(
      'exec',
      '-d',
      'peer-a',
      '--',
      'python3',
      '-m',
      'http.server',
      '8000',
      '--bind',
      '127.0.0.1',
    );
    const reach = async () =>
      (await cay.run('exec', 'peer-b', '--', 'curl', '-sf', '-o', '/dev/null', 'http://peer-a:8000/')).code;
    expect(await reach()).not.toBe(0);
    expect((await cay.run('net', 'join', 'peer-b', 'team')).stdout).toBe('team\n');
    await expect.poll(reach, { timeout: 30_000 }).toBe(0);
    expect((await cay.run('net', 'leave', 'peer-b', 'team')).stdout).toBe('in no named network\n');
    expect(await reach()).not.toBe(0);
  });

  it('are listed as a table, by label and state, as ids and as JSON', async () => {
    await create('--name', 'one', '-l', 'team=a');
    await create('--name', 'two', '-l', 'team=b');
    await cay.run('stop', 'two');
    const { stdout } = await cay.run('ls');
    expect(stdout.split('\n')[0]).toMatch(/^ID +NAME +STATE +TEMPLATE +RUNTIME +LIMITS +AGE +LABELS$/);
    expect(stdout).not.toContain('\u001b');
    const names = async (...flags: string[]) =>
      (await cay.json<Sandbox['info'][]>('ls', ...flags)).map(({ name }) => name);
    expect(await names()).toEqual(['two', 'one']);
    expect(await names('-l', 'team=a')).toEqual(['one']);
    expect(await names('--state', 'stopped')).toEqual(['two']);
    expect((await cay.run('ls', '-q')).stdout).toMatch(/^(sbx_[a-z0-9]{20}\n){2}$/);
    expect((await cay.run('rm', '--all', '--yes')).code).toBe(0);
    expect(await names()).toEqual([]);
  });

  it('are stopped and started with their files', async () => {
    await create('--name', 'kept');
    await cay.run('exec', 'kept', '--', 'sh', '-c', 'echo data > file');
    expect(await cay.run('stop', 'kept')).toMatchObject({ code: 0, stdout: 'kept\n' });
    expect(await cay.run('exec', 'kept', 'true')).toMatchObject({
      code: 125,
      stderr: 'error: Sandbox "kept" is stopped\nhint: start it with "cay start kept"\n'.replace(
        'kept',
        (await cay.json<Sandbox['info']>('inspect', 'kept')).id,
      ),
    });
    expect((await cay.run('start', 'kept')).code).toBe(0);
    expect((await cay.run('exec', 'kept', 'cat', 'file')).stdout).toBe('data\n');
    await cay.run('rm', 'kept');
  });

  it('that do not exist are an error with a hint', async () => {
    expect(await cay.run('inspect', 'nobody')).toEqual({
      code: 66,
      stdout: '',
      stderr:
        'error: Sandbox "nobody" does not exist\nhint: "cay ls" lists those that do; the beginning of an id has 4 characters or more\n',
    });
  });
});

describe('commands', () => {
  it('go on in the background; their output is shown, followed and attached to', async () => {
    await create('--name', 'bg');
    const id = (
      await cay.run(
        'exec',
        '-d',
        '-i',
        'bg',
        '--',
        'sh',
        '-c',
        'echo one; echo two >&2; read line; echo got $line',
      )
    ).stdout.trim();
    await expect
      .poll(async () => (await cay.run('logs', 'bg', id)).stdout, { timeout: 10_000 })
      .toBe('one\n');
    const { commands } = await cay.json<{ commands: CommandInfo[] }>('inspect', 'bg');
    expect(commands).toMatchObject([{ id }]);
    const following = ended(cay.start('logs', '-f', 'bg', id));
    expect(await cay.run('attach', 'bg', { input: 'a word\n' })).toMatchObject({
      code: 0,
      stdout: 'one\ngot a word\n',
      stderr: 'two\n',
    });
    expect(await following).toMatchObject({ code: 0, stdout: 'one\ngot a word\n', stderr: 'two\n' });
    await cay.run('rm', 'bg');
  });

  it('are listed and killed, one or all of them', async () => {
    await create('--name', 'busy');
    const start = async () => (await cay.run('exec', '-d', 'busy', '--', 'sleep', '600')).stdout.trim();
    const [one, two] = [await start(), await start()];
    expect((await cay.run('ps', '-q', 'busy')).stdout).toBe(`${one}\n${two}\n`);
    expect(await cay.run('kill', 'busy')).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(one) as string,
    });
    expect((await cay.run('kill', '-s', 'term', 'busy', one)).stdout).toBe(`${one}\n`);
    await expect
      .poll(async () => (await cay.run('ps', '-q', 'busy')).stdout, { timeout: 15_000 })
      .toBe(`${two}\n`);
    expect((await cay.run('kill', '--all', 'busy')).stdout).toBe(`${two}\n`);
    await expect.poll(async () => (await cay.run('ps', '-q', 'busy')).stdout, { timeout: 15_000 }).toBe('');
    const ended = await cay.json<CommandInfo[]>('ps', '-a', 'busy');
    expect(ended.map(({ end }) => end)).toMatchObject([{ signal: 'SIGTERM' }, { signal: 'SIGKILL' }]);
    expect((await cay.run('kill', '-s', 'sigfoo', 'busy')).code).toBe(64);
  }, 60_000);

  it('take flags after the sandbox, and a hint for a line without a shell', async () => {
    await create('--name', 'flags');
    const run = await cay.run(
      'exec',
      'flags',
      '--data',
      cay.dataDir,
      '-e',
      'A=b',
      '--',
      'sh',
      '-c',
      'echo $A',
    );
    expect(run).toEqual({ code: 0, stdout: 'b\n', stderr: '' });
    expect(await cay.run('exec', 'flags', '--', 'ls -la')).toMatchObject({
      code: 127,
      stderr: expect.stringContaining("hint: a shell line needs a shell: sh -c 'ls -la'") as string,
    });
  });

  it('give their result as JSON', async () => {
    await create('--name', 'json');
    const { code, stdout } = await cay.run('exec', '--json', 'json', '--', 'sh', '-c', 'echo out; exit 5');
    expect({ code, result: JSON.parse(stdout) as unknown }).toMatchObject({
      code: 5,
      result: { exitCode: 5, stdout: 'out\n' },
    });
    await cay.run('rm', 'json');
  });
});

describe('the rest', () => {
  it('shows statistics once', async () => {
    const id = await create('--memory', '256m');
    // Without a terminal that is one answer, with --once and without.
    for (const once of [['--once'], []])
      expect(await cay.json<(Stats & { id: string })[]>('stats', ...once)).toMatchObject([
        { id, memoryLimitBytes: 256 * 1024 ** 2 },
      ]);
    expect((await cay.run('stats', '--once', id)).stdout).toMatch(
      /^SANDBOX +CPU +CPU TIME +MEMORY[\s\S]+ \d+ % +[\d.]+ s /,
    );
    await cay.run('rm', id);
  });

  it('makes, lists and revokes keys, and a key opens the server from elsewhere', async () => {
    const { key, secret } = await cay.json<{ key: Key; secret: string }>('key', 'create', 'robot');
    const { url } = await cay.json<{ url: string }>('status');
    const env = { CAY_URL: url, CAY_API_KEY: secret, CAY_DATA: '/nonexistent' };
    expect((await cay.run('ls', { env })).code).toBe(0);
    expect((await cay.json<Key[]>('key', 'ls')).map(({ name }) => name)).toContain('robot');
    expect((await cay.run('key', 'rm', key.id)).code).toBe(0);
    expect(await cay.run('ls', { env })).toMatchObject({
      code: 77,
      stderr: expect.stringContaining('error: The API key is not known') as string,
    });
  });

  it('lists templates and events, and follows events', async () => {
    expect(await cay.json<{ name: string }[]>('template', 'ls')).toContainEqual(
      expect.objectContaining({ name: 'base', snapshot: null }),
    );
    // With the last event of the past it shows from when on it follows.
    const following = cay.start('events', '--follow', '--tail', '1', '--json');
    let stdout = '';
    following.stdout!.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    const end = ended(following);
    await expect.poll(() => stdout, { timeout: 10_000 }).toContain('\n');
    const id = await create('--name', 'watched');
    await cay.run('exec', id, 'true');
    await cay.run('rm', id);
    const removed = new RegExp(`"sandbox.removed"[^\\n]*${id}`);
    await expect.poll(() => stdout, { timeout: 10_000 }).toMatch(removed);
    following.kill('SIGTERM');
    await end;
    // What is gone still has its events, under its id.
    for (const lines of [stdout, (await cay.run('events', '--json', '--sandbox', id)).stdout]) {
      const events = lines
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as CayEvent);
      expect(events.filter(({ sandbox }) => sandbox === id).map(({ type }) => type)).toEqual([
        'sandbox.created',
        'command.started',
        'command.ended',
        'sandbox.removed',
      ]);
    }
  });

  it('completes verbs in each shell', async () => {
    for (const shell of ['bash', 'zsh', 'fish'])
      expect((await cay.run('completion', shell)).stdout).toContain('forward');
    expect((await cay.run('completion', 'tcsh')).code).toBe(64);
  });

  it('suggests the verb that was meant', async () => {
    expect(await cay.run('inspekt')).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('inspect') as string,
    });
  });

  it('looks at this machine and finds that sandboxes work', async () => {
    const { healthy, findings } = await cay.json<{
      healthy: boolean;
      findings: { what: string; state: string }[];
    }>('doctor');
    expect(healthy).toBe(true);
    for (const what of ['runc', 'runsc', 'server'])
      expect(findings).toContainEqual(expect.objectContaining({ what, state: 'works' }));
  });
});
