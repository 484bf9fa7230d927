/** `cay template build`: what it keeps, what it refuses, and what is left when the server is killed. */
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Sandbox, SnapshotPage, TemplateBuild } from '@cay/sdk/client';
import type { Template } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LAUNCHER_PATH, openCay, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const why = whyNoLocal();
if (why !== undefined) console.info(`cay template build: skipped: ${why}`);
const SECRET = 'correct-horse-battery';

describe.skipIf(why !== undefined)('cay template build', { timeout: 120_000 }, () => {
  let cay: Cay;
  let dir: string;
  let count = 0;

  beforeAll(async () => {
    dir = await mkdtemp('/tmp/cay-template-build-');
    cay = await openCay({ CAY_RUNTIME: 'runc' });
    await up();
  }, 120_000);
  afterAll(async () => {
    await cay?.[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  });

  async function up(): Promise<void> {
    const { code, stderr } = await cay.run('up', '-d');
    if (code !== 0) throw new Error(stderr);
  }

  async function build(
    name: string,
    dockerfile: string,
    files: Record<string, string> = {},
    ...more: string[]
  ) {
    const context = join(dir, `context-${count++}`);
    await mkdir(context);
    await writeFile(join(context, 'Dockerfile'), dockerfile);
    for (const [path, text] of Object.entries(files)) await writeFile(join(context, path), text);
    return cay.run('template', 'build', name, context, ...more);
  }

  const inSandbox = async (template: string, line: string) =>
    (await cay.run('run', '--template', template, '-u', 'root', '--', 'sh', '-c', line)).stdout;
  const sandboxes = () => cay.json<Sandbox['info'][]>('ls');

  it('writes a template to a file, and takes it in under another name with its configuration', async () => {
    const dockerfile = 'FROM base\nENV KIND=exported\nWORKDIR /w\nRUN echo kept > note';
    expect((await build('outgoing', dockerfile)).code).toBe(0);
    const file = join(dir, 'outgoing.cay');
    expect((await cay.run('template', 'export', 'outgoing', file)).code).toBe(0);
    expect(await cay.run('template', 'import', file)).toMatchObject({ code: expect.any(Number), stdout: '' });
    expect(await cay.run('template', 'import', file, '--name', 'incoming')).toMatchObject({
      code: 0,
      stdout: 'incoming\n',
    });
    expect(await inSandbox('incoming', 'cat /w/note; echo $KIND; pwd')).toBe('kept\nexported\n/w\n');
    const templates = await cay.json<Template[]>('template', 'ls');
    const [one, other] = ['outgoing', 'incoming'].map((name) => templates.find((each) => each.name === name));
    expect(other?.config).toEqual(one?.config);
    const broken = join(dir, 'broken.cay');
    await writeFile(broken, 'no template\n');
    expect((await cay.run('template', 'import', broken)).stderr).toContain('cay template export');
  });

  it('runs a step again when something changed that it depends on, and only then', async () => {
    const dockerfile =
      'FROM base\nARG WHO=one\nWORKDIR /w\nCOPY a.txt .\nRUN date +%s%N > stamp\nRUN echo $WHO > who';
    const first = await build('cached', dockerfile, { 'a.txt': 'a' });
    expect(first).toMatchObject({ code: 0, stdout: 'cached\n' });
    expect(first.stderr).not.toContain('CACHED');
    const stamp = await inSandbox('cached', 'cat /w/stamp');
    const again = await build('cached', dockerfile, { 'a.txt': 'a' });
    expect(again.stderr.match(/CACHED/g)).toHaveLength(4);
    expect(await inSandbox('cached', 'cat /w/stamp /w/who')).toBe(`${stamp}one\n`);
    const argument = await build('cached', dockerfile, { 'a.txt': 'a' }, '--build-arg', 'WHO=two');
    expect(argument.stderr.match(/CACHED/g)).toBeNull();
    expect(await inSandbox('cached', 'cat /w/who')).toBe('two\n');
    const content = await build('cached', dockerfile, { 'a.txt': 'b' });
    expect(content.stderr.match(/CACHED/g)).toHaveLength(1);
    const none = await build('cached', dockerfile, { 'a.txt': 'b' }, '--no-cache');
    expect(none.stderr).not.toContain('CACHED');
    expect(await sandboxes()).toEqual([]);
  });

  it('keeps secrets out of the log, the files and the records', async () => {
    const file = join(dir, 'secret');
    await writeFile(file, SECRET);
    const dockerfile =
      'FROM base\nRUN --mount=type=secret,id=token cat /run/secrets/token && wc -c < /run/secrets/token > /size\n' +
      'RUN --mount=type=secret,id=token,env=TOKEN echo "got $TOKEN"; ls /run/secrets 2>&1 || true';
    const built = await build('secret', dockerfile, {}, '--secret', `id=token,src=${file}`);
    expect(built).toMatchObject({ code: 0 });
    expect(built.stderr).toContain('[stdout]: ***');
    expect(built.stderr).toContain('got ***');
    expect(built.stderr + built.stdout).not.toContain(SECRET);
    expect(
      await inSandbox(
        'secret',
        'cat /size; ls /run/secrets 2>&1; grep -rl correct-horse /etc /root /home /tmp /var',
      ),
    ).not.toContain('/var/');
    const missing = await build('none', 'FROM base\nRUN --mount=type=secret,id=other,required=true true');
    expect(missing).toMatchObject({ code: 65 });
    expect(missing.stderr).toContain('--secret id=other');
  });

  it('gives files to one command alone', async () => {
    const dockerfile =
      'FROM base\nWORKDIR /w\nRUN mkdir /there && echo before > /there/file\n' +
      'RUN --mount=type=bind,source=a.txt,target=/w/bound cat bound > copied\n' +
      'RUN --mount=type=cache,target=/there test ! -e /there/file && touch /there/lost\n' +
      'RUN --mount=type=tmpfs,target=/deep/new/dir touch /deep/new/dir/lost';
    expect(await build('mounts', dockerfile, { 'a.txt': 'bound\n' })).toMatchObject({ code: 0 });
    expect(await inSandbox('mounts', 'cat /w/copied; ls /w; ls /there; ls /deep 2>&1 | wc -l')).toBe(
      'bound\ncopied\nfile\n1\n',
    );
  });

  it('runs here-documents', async () => {
    const dockerfile =
      'FROM base\nENV NAME=world\nRUN <<EOF\necho "hello $NAME" > /one\nEOF\nRUN <<EOF\n#!/usr/bin/env python3\nopen("/two", "w").write("python\\n")\nEOF\n' +
      'RUN cat <<A <<B > /three\nx\nA\ny\nB\nCOPY <<"FILE" <<OTHER /files/\n$NAME\nFILE\n$NAME\nOTHER';
    expect(await build('heredocs', dockerfile)).toMatchObject({ code: 0 });
    expect(await inSandbox('heredocs', 'cat /one /two /three /files/FILE /files/OTHER')).toBe(
      'hello world\npython\ny\n$NAME\nworld\n',
    );
  });

  it('ends what a command leaves running', async () => {
    const dockerfile =
      'FROM base\nRUN sh -c "sleep 3; echo late > /late" & true\nRUN sleep 5; test ! -e /late';
    expect(await build('left', dockerfile)).toMatchObject({ code: 0 });
  });

  it('says what is wrong, and leaves nothing', async () => {
    const cases: [string, string][] = [
      ['FROM base\nRUNN x', 'Dockerfile line 2: "RUNN" is no instruction'],
      ['FROM base\nCOPY missing /x', '"missing" is not in the build context'],
      ['FROM base\nCOPY ../../etc/passwd /x', 'is not in the build context'],
      ['FROM base\nADD https://example.com/x /x', 'RUN curl'],
      ['FROM base\nRUN exit 7', 'exit code 7'],
      ['FROM base\nCOPY --parents a /x', '--parents'],
      ['FROM base\nRUN --mount=type=ssh true', 'type=ssh'],
      ['FROM no-such-template', 'unknown'],
    ];
    for (const [dockerfile, text] of cases) {
      const failed = await build('wrong', dockerfile, { a: 'a' });
      expect(failed.code).not.toBe(0);
      expect(failed.stderr).toContain(text);
    }
    expect(await sandboxes()).toEqual([]);
    expect((await cay.json<Template[]>('template', 'ls')).map(({ name }) => name)).not.toContain('wrong');
  });

  it('has a start command that is ready in every sandbox', async () => {
    const dockerfile = 'FROM base\nWORKDIR /app\nRUN echo served > index.html\nEXPOSE 8000\nUSER user';
    const built = await build(
      'server',
      dockerfile,
      {},
      '--start',
      'python3 -m http.server 8000',
      '--ready-http',
      'http://localhost:8000/',
    );
    expect(built).toMatchObject({ code: 0 });
    const box = await cay.json<Sandbox['info']>('create', '--template', 'server');
    expect(box).toMatchObject({
      user: 'user',
      workdir: '/app',
      ports: [{ port: 8000, visibility: 'private' }],
    });
    const line = 'for i in $(seq 100); do curl -sf localhost:8000/index.html && exit; sleep 0.1; done';
    expect((await cay.run('exec', box.id, '--', 'bash', '-c', line)).stdout).toBe('served\n');
    expect((await cay.run('rm', box.id)).code).toBe(0);
  });

  it('is tagged, inspected and removed', async () => {
    expect(
      await build('tagged', 'FROM base\nLABEL a=b\nCMD ["echo", "own"]', {}, '--tag', 'one'),
    ).toMatchObject({ stdout: 'tagged\ntagged:one\n' });
    expect(await cay.run('template', 'tag', 'tagged', 'tagged:two')).toMatchObject({
      code: 0,
      stdout: 'tagged:two\n',
    });
    expect(await cay.json<Template>('template', 'inspect', 'tagged:two')).toMatchObject({
      config: { labels: { a: 'b' }, cmd: ['echo', 'own'] },
    });
    const box = await cay.json<Sandbox['info']>('create', '--template', 'tagged:one', '--image-command');
    expect((await cay.run('logs', box.id)).stdout).toBe('own\n');
    expect((await cay.run('rm', box.id)).code).toBe(0);
    expect(await cay.run('template', 'rm', 'tagged', 'tagged:one', 'tagged:two')).toMatchObject({ code: 0 });
  });

  it('leaves nothing half made when the server is killed between any two steps', async () => {
    for (const point of ['builds.step.taken', 'builds.step.kept']) {
      const dockerfile = `FROM base\nRUN echo killed-one > /one # ${point}\nRUN echo killed-two > /two`;
      const known = await cay.json<SnapshotPage['snapshots']>('snapshot', 'ls');
      const before = new Set(known.map(({ labels }) => labels['cay/build']));
      await cay.run('down');
      const server = spawn(LAUNCHER_PATH, ['up'], {
        env: { ...cay.env, CAY_FAULT_POINTS: JSON.stringify({ [point]: 'kill' }) },
        stdio: 'ignore',
      });
      const ended = new Promise((done) => server.once('exit', done));
      await expect.poll(async () => (await cay.run('template', 'ls')).code, { timeout: 30_000 }).toBe(0);
      const killed = await build('killed', dockerfile, {}, '--no-cache');
      expect(killed.code).not.toBe(0);
      await ended;
      await up();
      expect(await sandboxes()).toEqual([]);
      const all = await cay.json<SnapshotPage['snapshots']>('snapshot', 'ls');
      const left = all.filter(
        ({ labels }) => labels['cay/build'] !== undefined && !before.has(labels['cay/build']),
      );
      // A step that was recorded is used by the next build; one that was not is gone.
      expect(left).toHaveLength(point === 'builds.step.kept' ? 1 : 0);
      const built = await build('killed', dockerfile);
      expect(built).toMatchObject({ code: 0 });
      expect(built.stderr.match(/CACHED/g) ?? []).toHaveLength(point === 'builds.step.kept' ? 1 : 0);
      expect(await inSandbox('killed', 'cat /one /two')).toBe('killed-one\nkilled-two\n');
      expect((await cay.run('template', 'rm', 'killed')).code).toBe(0);
    }
  });

  it('is cancelled by an interrupt', async () => {
    const context = join(dir, 'slow');
    await mkdir(context);
    await writeFile(join(context, 'Dockerfile'), 'FROM base\nRUN echo begun; sleep 300');
    const child = cay.start('template', 'build', 'slow', context, '--json');
    await expect.poll(async () => (await sandboxes()).length, { timeout: 20_000 }).toBe(1);
    child.kill('SIGINT');
    let output = '';
    child.stdout?.on('data', (part: Buffer) => (output += part.toString()));
    expect(await new Promise((done) => child.once('close', done))).not.toBe(0);
    expect(JSON.parse(output) as TemplateBuild).toMatchObject({
      state: 'failed',
      failure: { message: 'The build was cancelled' },
    });
    expect(await sandboxes()).toEqual([]);
  });
});
