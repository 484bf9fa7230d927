import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { CayEvent, CommandInfo, Key, Sandbox, Stats } from '@cay/sdk';
import { ended, openCay, type Cay } from '../support/cay.ts';

let cay: Cay;
beforeAll(async () => {
  cay = await openCay({ CAY_RUNTIME: 'runc' });
});
afterEach(() => cay.run('rm', '--all'));
afterAll(() => cay[Symbol.asyncDispose]());

async function create(...flags: string[]): Promise<string> {
  const { code, stdout, stderr } = await cay.run('create', ...flags);
  // Starting the server may be told of on standard error.
  expect(code, stderr).toBe(0);
  return stdout.trim();
}

describe('sandboxes', () => {
  it('are named by id, by name and by the beginning of an id', async () => {
    const id = await create('--name', 'first', '-l', 'team=a');
    for (const ref of [id, 'first', id.slice(0, 12), id.slice(4, 12)]) {
      expect(await cay.run('exec', ref, 'echo', 'here')).toMatchObject({ code: 0, stdout: 'here\n' });
    }
    await cay.run('rm', 'first');
  });

  it('are not guessed when several begin so', async () => {
    const ids = [await create(), await create()];
    const answer = await cay.run('inspect', 'sbx_');
    expect(answer).toMatchObject({ code: 64, stderr: expect.stringContaining('hint:') as string });
    for (const id of ids) expect(answer.stderr).toContain(id);
    expect((await cay.run('rm', ...ids)).stdout.trim().split('\n')).toEqual(ids);
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
    expect((await cay.run('rm', '--all')).code).toBe(0);
    expect(await names()).toEqual([]);
  });

  it('are stopped and started with their files', async () => {
    await create('--name', 'kept');
    await cay.run('exec', 'kept', '--', 'sh', '-c', 'echo data > file');
    expect(await cay.run('stop', 'kept')).toMatchObject({ code: 0, stdout: 'kept\n' });
    expect(await cay.run('exec', 'kept', 'true')).toMatchObject({
      code: 125,
      stderr: 'error: Sandbox "kept" is stopped\nhint: start it first\n'.replace(
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
      stderr: 'error: Sandbox "nobody" does not exist\nhint: "cay ls" shows those that do\n',
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
    expect(await cay.json<(Stats & { id: string })[]>('stats', '--once')).toMatchObject([
      { id, memoryLimitBytes: 256 * 1024 ** 2 },
    ]);
    expect((await cay.run('stats', '--once', id)).stdout).toMatch(/^SANDBOX +CPU +MEMORY/);
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
    const following = cay.start('events', '--follow', '--json');
    let stdout = '';
    following.stdout!.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    const end = ended(following);
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
