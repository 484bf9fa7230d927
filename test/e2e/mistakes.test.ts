/** Mistakes of users, and the errors and hints that answer them. On the memory backend. */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CayEvent, Key, Project } from '@cay/sdk';
import { openCay, type Cay } from '../support/cay.ts';

let cay: Cay;
let scratch: string;
beforeAll(async () => {
  [cay, scratch] = await Promise.all([openCay({ CAY_BACKEND: 'memory' }), mkdtemp('/tmp/cay-mistakes-')]);
  expect((await cay.run('up', '--detach')).code).toBe(0);
});
afterAll(async () => {
  await cay[Symbol.asyncDispose]();
  await rm(scratch, { recursive: true, force: true });
});

const said = (text: string) => expect.stringContaining(text) as string;

describe('flags and verbs', () => {
  it.each([
    [['exec', '-v', 'a:b', 'true'], 'cay cp'],
    [['run', '-v', 'a', 'true'], 'NAME:/path'],
    [['run', '-p', '80:80', 'true'], 'cay forward'],
    [['run', '--network', 'host', 'true'], 'none, packages, public, ask'],
    [['ls', '--lable', 'a=b'], 'did you mean --label?'],
    [['images'], 'cay image ls'],
    [['inspekt'], 'did you mean "cay inspect"?'],
    [['ls', '--project', 'team-a'], '--all-projects'],
    [['cp', '-', 'box:file'], 'cay exec -i'],
    [['help', 'nonsense'], '"cay help" lists the verbs'],
    [['bogus'], '"cay help" lists the verbs'],
  ])('cay %j is refused with what to use instead', async (args, hint) => {
    expect(await cay.run(...args)).toMatchObject({ code: 64, stdout: '', stderr: said(hint) });
  });

  it('"help VERB" shows the help of a verb', async () => {
    expect(await cay.run('help', 'port', 'add')).toMatchObject({
      code: 0,
      stdout: said('Usage: cay port add'),
    });
    expect((await cay.run('help')).stdout).toContain('expose');
  });

  it('are refused as JSON when results are JSON', async () => {
    for (const args of [
      ['ls', '--json', '--bogus'],
      ['inspect', '--json', 'nobody'],
    ]) {
      const { code, stdout, stderr } = await cay.run(...args);
      expect([64, 66]).toContain(code);
      expect(stdout).toBe('');
      const { error } = JSON.parse(stderr) as { error: { code: string; message: string; hint: string } };
      expect(error).toMatchObject({ code: expect.any(String), message: expect.any(String) });
    }
  });

  it('name flags and sizes where the API names fields and bytes', async () => {
    expect((await cay.run('create', '--memory', '1')).stderr).toContain(
      'error: --memory must be at least 16m\nhint: ',
    );
    expect((await cay.run('create', '--name', 'Not Nice')).stderr).toMatch(
      /^error: --name is not valid: must be/,
    );
    await cay.run('create', '--name', 'taken');
    expect((await cay.run('create', '--name', 'taken')).stderr).toContain('--get-or-create');
    expect((await cay.run('rm', 'taken')).code).toBe(0);
  });
});

describe('addresses and directories', () => {
  it('--data beats CAY_URL', async () => {
    const env = { CAY_URL: 'http://127.0.0.1:40999', CAY_API_KEY: 'e2b_0' };
    expect((await cay.run('ls', { env })).code).toBe(69);
    expect((await cay.run('ls', '--data', cay.dataDir, { env })).code).toBe(0);
    expect(await cay.run('rm', '--all', '--yes', '--data', join(scratch, 'nope'))).toMatchObject({
      code: 69,
      stderr: said('No server has used the data directory'),
    });
  });

  it.each([
    ['127.0.0.1:7070', 'is not the address of a server'],
    ['http://127.0.0.1:40999', 'nothing listens there'],
    ['http://no-such-name.invalid', 'check --url or CAY_URL, and the name servers of this machine'],
  ])('--url %s says what is wrong', async (url, why) => {
    const { stderr } = await cay.run('ls', '--url', url);
    expect(stderr).toContain(why);
    expect(stderr).not.toMatch(/\bE[A-Z]{4,}\b/);
  });

  it('a wrong key names the variable', async () => {
    const { url } = await cay.json<{ url: string }>('status');
    expect(await cay.run('ls', { env: { CAY_URL: url, CAY_API_KEY: 'e2b_wrong' } })).toMatchObject({
      code: 77,
      stderr: said('hint: set CAY_API_KEY'),
    });
  });

  it.each([
    [['--runtime', 'foo', '--backend', 'local'], '--runtime names "foo", which is unknown'],
    [['--backend', 'foo'], '--backend cannot be "foo": unknown backend'],
    [['--tls-cert', '/nope', '--tls-key', '/nope'], 'Cannot read the certificate "/nope": no such file'],
    [['--listen', '0.0.0.0:0'], '--insecure'],
  ])('a refused "up %j" leaves no directory behind', async (flags, why) => {
    const dir = join(scratch, 'deep/er');
    for (const detach of [[], ['--detach']]) {
      const { code, stderr } = await cay.run('up', ...detach, '--data', dir, ...flags);
      expect(code).not.toBe(0);
      expect(stderr).toContain(why);
      expect(existsSync(join(scratch, 'deep'))).toBe(false);
    }
  });

  it('a setting that cannot be is named as it was written, and an unknown variable is a warning', async () => {
    await using other = await openCay({ CAY_BACKEND: 'memory' });
    expect(await other.run('up', { env: { CAY_POOL: 'many' } })).toMatchObject({
      code: 64,
      stderr: said('CAY_POOL cannot be "many": this must be a whole number'),
    });
    const { code, stderr } = await other.run('up', '--detach', { env: { CAY_BAKEND: 'local' } });
    expect(code).toBe(0);
    expect(stderr).toContain(
      'warning: CAY_BAKEND is not a setting and is ignored; did you mean CAY_BACKEND?',
    );
    expect(await readFile(join(other.dataDir, 'server.log'), 'utf8')).toContain('did you mean CAY_BACKEND?');
    await other.run('down');
  });

  it('a directory that cannot be made is refused at once', async () => {
    expect(await cay.run('up', '--data', '/proc/nope')).toMatchObject({
      code: 66,
      stderr: said('Cannot create the data directory "/proc/nope": no such file or directory'),
    });
  });

  it('certificates go with the rest of the data', async () => {
    await using other = await openCay({ CAY_BACKEND: 'memory' });
    await other.run('cert', 'sbx.localhost');
    expect(existsSync(join(other.dataDir, 'certificates/sbx.localhost/key.pem'))).toBe(true);
    await other.run('down', '--destroy', '--yes');
    expect(existsSync(join(other.dataDir, 'certificates'))).toBe(false);
  });

  it('a backup that cannot be written is an error in words', async () => {
    expect((await cay.run('backup', '/nonexistent/file')).stderr).toContain(
      'error: Cannot write "/nonexistent/file": no such file or directory\nhint: ',
    );
  });
});

describe('projects and quotas', () => {
  it('are made, shown, changed and removed', async () => {
    const id = (await cay.run('project', 'create', 'team-a', 'sandboxes=1', 'memory=8g')).stdout.trim();
    expect(id).toMatch(/^prj_/);
    const { secret } = await cay.json<{ secret: string }>('key', 'create', 'robot', '--project', 'team-a');
    const { url } = await cay.json<{ url: string }>('status');
    const env = { CAY_URL: url, CAY_API_KEY: secret };
    expect((await cay.run('create', '--name', 'theirs', { env })).code).toBe(0);
    expect(await cay.run('create', { env })).toMatchObject({
      code: 69,
      stderr: said("The project's quota for sandboxes is 1: 1 in use, 1 more asked for"),
    });
    expect((await cay.run('ls', '-q')).stdout).toBe('');
    expect((await cay.run('ls', '--all-projects')).stdout).toMatch(/theirs +team-a/);
    expect((await cay.run('ls', '--all-projects', { env })).code).toBe(77);
    expect((await cay.run('quota', 'show', 'team-a')).stdout).toMatch(
      /^memory +\S+ \S+ +8\.0 GiB +the project$/m,
    );
    expect((await cay.run('quota', 'set', 'team-a', 'sandboxes=5')).stdout).toMatch(/^sandboxes +1 +5 /m);
    expect((await cay.run('quota', 'set', 'team-a', 'sandbags=5')).stderr).toContain('sandboxes, cpus');
    expect((await cay.json<Key[]>('key', 'ls')).some(({ name }) => name === 'robot')).toBe(true);
    expect((await cay.run('key', 'ls')).stdout).toMatch(/robot +member +team-a/);
    expect(await cay.run('project', 'rm', 'team-a', '--yes')).toMatchObject({
      code: 65,
      stderr: said('it still has sandboxes (1)'),
    });
    await cay.run('rm', 'theirs', { env });
    expect((await cay.run('project', 'rm', 'team-a')).code).toBe(64);
    expect((await cay.run('project', 'rm', 'team-a', '--yes')).stdout).toBe('team-a\n');
    expect((await cay.json<Project[]>('project', 'ls')).map(({ name }) => name)).toEqual(['default']);
    expect((await cay.run('ls', { env })).code).toBe(77);
  }, 120_000);

  it('a key has a role', async () => {
    const { key } = await cay.json<{ key: Key }>('key', 'create', 'second', '--role', 'admin');
    expect(key.role).toBe('admin');
    expect((await cay.run('key', 'create', 'third', '--role', 'king')).code).toBe(64);
    // By name, since a name that is taken for an unknown id would leave the key as it is.
    expect(await cay.run('key', 'rm', 'second', 'nobody')).toMatchObject({
      code: 66,
      stdout: 'second\n',
      stderr: said('Key "nobody" does not exist'),
    });
    expect((await cay.json<Key[]>('key', 'ls')).some(({ name }) => name === 'second')).toBe(false);
  });

  it.each(['template', 'volume', 'webhook', 'secret', 'snapshot', 'bucket'])(
    '"%s rm" of what does not exist says so',
    async (verb) => {
      expect(await cay.run(verb, 'rm', 'nope')).toMatchObject({
        code: 66,
        stdout: '',
        stderr: said(`cay ${verb} ls`),
      });
    },
  );
});

describe('events', () => {
  it('are the newest, since a moment, or new ones, with who and why', async () => {
    await cay.run('create', '--name', 'seen');
    await cay.run('create', '--name', 'seen');
    const lines = (await cay.run('events', '--tail', '1')).stdout.trim().split('\n');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/call\.failed .* by key admin +already_exists +operation=createSandbox$/);
    const all = (await cay.run('events', '--json', '--tail', '1000')).stdout.trim().split('\n');
    const events = all.map((line) => JSON.parse(line) as CayEvent);
    const { atMs } = events.at(-2)!;
    const since = await cay.run('events', '--json', '--since', new Date(atMs).toISOString());
    expect(since.stdout.trim().split('\n')).toEqual(all.filter((_, index) => events[index]!.atMs >= atMs));
    expect((await cay.run('events', '--since', new Date(Date.now() + 60_000).toISOString())).stdout).toBe('');
    await cay.run('rm', 'seen');
  });
});

describe('version', () => {
  it('is that of the client, and of the server if one answers', async () => {
    const { version } = JSON.parse(
      await readFile(join(import.meta.dirname, '../../server/package.json'), 'utf8'),
    ) as { version: string };
    expect(await cay.json('version')).toMatchObject({ client: version, server: version });
    await writeFile(join(scratch, 'x'), '');
    expect((await cay.run('version', '--data', join(scratch, 'x'))).stdout).toContain('no answer');
  });
});
