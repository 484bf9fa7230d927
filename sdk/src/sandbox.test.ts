import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryServer, type MemoryServer } from '../../test/support/memory-server.ts';
import { Sandbox, connect } from './index.ts';
import { uploadDir } from './node.ts';

let server: MemoryServer;
beforeAll(async () => {
  server = await memoryServer();
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
});

const text = async (chunks: AsyncIterable<{ channel: string; data: Uint8Array }>, channel = 'stdout') => {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) if (chunk.channel === channel) parts.push(chunk.data);
  return Buffer.concat(parts).toString();
};

describe('Sandbox', () => {
  it('is made, found by id and by name, listed, and removed at the end of its block', async () => {
    let id: string;
    {
      await using sandbox = await Sandbox.create({ name: 'sdk-block', labels: { suite: 'sdk' } }, server);
      ({ id } = sandbox);
      expect(sandbox.info.state).toBe('active');
      expect((await Sandbox.connect('sdk-block', server)).id).toBe(id);
      expect((await Sandbox.connect(id, server)).info.name).toBe('sdk-block');
      const listed = await Array.fromAsync(Sandbox.list({ ...server, labels: { suite: 'sdk' } }));
      expect(listed.map((one) => one.id)).toEqual([id]);
      expect(await Array.fromAsync(Sandbox.list({ ...server, labels: { suite: 'other' } }))).toEqual([]);
    }
    await expect(Sandbox.connect(id, server)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is validated beforehand, part by part', async () => {
    expect(await Sandbox.validate({}, server)).toEqual({ ok: true, platform: 'memory', problems: [] });
    const { ok, problems } = await Sandbox.validate(
      { template: 'nothing', runtime: 'warp', platform: 'memory' },
      server,
    );
    expect([ok, problems.map(({ code, field }) => [code, field])]).toEqual([
      false,
      [
        ['not_found', 'template'],
        ['not_found', 'runtime'],
      ],
    ]);
    expect(await Sandbox.validate({ platform: 'moon' }, server)).toMatchObject({
      ok: false,
      platform: null,
      problems: [{ code: 'not_found' }],
    });
    await expect(Sandbox.validate({ limits: { cpus: -1 } }, server)).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('lists over pages', async () => {
    const made = await Promise.all(
      Array.from({ length: 105 }, () => Sandbox.create({ labels: { many: 'yes' } }, server)),
    );
    const listed = await Array.fromAsync(Sandbox.list({ ...server, labels: { many: 'yes' } }));
    expect(new Set(listed.map(({ id }) => id))).toEqual(new Set(made.map(({ id }) => id)));
    await Promise.all(made.map((sandbox) => sandbox.kill()));
  });

  it('is the same for the same idempotency key', async () => {
    const first = await Sandbox.create({}, { ...server, idempotencyKey: 'once' });
    const second = await Sandbox.create({}, { ...server, idempotencyKey: 'once' });
    expect(second.id).toBe(first.id);
    await first.kill();
  });

  it('runs a command once for one idempotency key', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const run = (command: string) => sandbox.exec(command, { idempotencyKey: 'once' });
    const first = await run('echo line >> lines; cat lines');
    expect((await run('echo line >> lines; cat lines')).stdout).toBe(first.stdout);
    expect(await sandbox.files.readText('/home/user/lines')).toBe('line\n');
    await expect(run('echo other')).rejects.toMatchObject({ code: 'conflict' });
  });

  it('is stopped, started with its files, and updated', async () => {
    await using sandbox = await Sandbox.create({}, server);
    await sandbox.files.write('/home/user/kept', 'yes');
    expect((await sandbox.stop({ graceMs: 100 })).state).toBe('stopped');
    await expect(sandbox.exec('true')).rejects.toMatchObject({ code: 'failed_precondition' });
    expect((await sandbox.start()).state).toBe('active');
    expect(await sandbox.files.readText('/home/user/kept')).toBe('yes');
    expect((await sandbox.update({ labels: { a: 'b' } })).labels).toEqual({ a: 'b' });
    expect((await sandbox.refresh()).labels).toEqual({ a: 'b' });
  });

  it('is removed in the background if the caller does not wait', async () => {
    const sandbox = await Sandbox.create({}, server);
    await sandbox.kill({ wait: false });
    await expect
      .poll(() =>
        Sandbox.connect(sandbox.id, server).then(
          () => 'there',
          () => 'gone',
        ),
      )
      .toBe('gone');
    await sandbox.kill();
  });
});

describe('commands', () => {
  it('give their output and exit code when waited for', async () => {
    await using sandbox = await Sandbox.create({}, server);
    expect(await sandbox.exec('echo out; echo err >&2; exit 3')).toMatchObject({
      stdout: 'out\n',
      stderr: 'err\n',
      exitCode: 3,
      end: { kind: 'exited' },
    });
    expect(await sandbox.exec(['echo', 'a  b'])).toMatchObject({ stdout: 'a  b\n' });
    expect(await sandbox.exec('cat', { input: 'given' })).toMatchObject({ stdout: 'given' });
    expect(await sandbox.exec('sleep 5', { timeoutMs: 50 })).toMatchObject({
      exitCode: 124,
      end: { kind: 'timed_out' },
    });
    await expect(sandbox.exec(['no-such-program'])).rejects.toMatchObject({
      code: 'not_found',
      details: { exitCode: 127 },
    });
  });

  it('stream their events in order', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const events = await Array.fromAsync(sandbox.execStream('echo one; echo two >&2'));
    expect(events.map(({ type }) => type)).toEqual(['started', 'stdout', 'stderr', 'end']);
  });

  it('take input, give output on each channel and end', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const command = await sandbox.spawn(['cat'], { stdin: true });
    await command.write('first ');
    await command.write(Buffer.from('second'));
    command.closeStdin();
    expect(await text(command)).toBe('first second');
    expect(await command.wait()).toEqual({ end: { kind: 'exited', exitCode: 0 }, exitCode: 0 });
    expect(command.offset).toBe(12);
  });

  it('lose nothing of what they say at once', async () => {
    await using sandbox = await Sandbox.create({}, server);
    for (let round = 0; round < 30; round++) {
      const command = await sandbox.spawn('echo quick');
      expect(await text(command)).toBe('quick\n');
    }
  });

  it('end by a signal', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const command = await sandbox.spawn(['sleep', '60']);
    command.kill('SIGTERM');
    expect(await command.wait()).toMatchObject({
      end: { kind: 'signalled', signal: 'SIGTERM' },
      exitCode: 143,
    });
  });

  it('go on when they are detached from, and are found again at an offset', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const command = await sandbox.spawn('echo before; cat', { stdin: true });
    for await (const { data } of command) if (data.length > 0) break;
    command.detach();
    await expect(command.ended).rejects.toMatchObject({ code: 'cancelled' });
    const again = await sandbox.attach(command.id, { offset: 7 });
    await again.write('after');
    again.closeStdin();
    expect(await text(again)).toBe('after');
    expect((await again.wait()).exitCode).toBe(0);
  });

  it('are launched, listed, looked at and signalled', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const { command, existing } = await sandbox.launch(['sleep', '60'], { id: 'mine' });
    expect({ id: command.id, existing }).toEqual({ id: 'mine', existing: false });
    expect((await sandbox.commands()).map(({ id }) => id)).toEqual(['mine']);
    await sandbox.signal('mine', 'SIGKILL');
    await expect
      .poll(async () => (await sandbox.command('mine')).end)
      .toEqual({ kind: 'signalled', signal: 'SIGKILL' });
  });

  it('reject with the code of the failure when they cannot start', async () => {
    await using sandbox = await Sandbox.create({}, server);
    await expect(sandbox.spawn(['no-such-program'])).rejects.toMatchObject({
      code: 'not_found',
      details: { exitCode: 127 },
    });
    await expect(sandbox.attach('unknown')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('files', () => {
  it('are written, read, looked at, listed, moved and removed', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const { files } = sandbox;
    const written = await files.write('/home/user/dir/a.txt', 'hello wörld', { mode: 0o600 });
    expect(written).toMatchObject({ type: 'file', mode: 0o600 });
    expect(await files.readText('/home/user/dir/a.txt')).toBe('hello wörld');
    expect(Buffer.from(await files.read('/home/user/dir/a.txt', { offset: 1, length: 4 })).toString()).toBe(
      'ello',
    );
    await files.write('/home/user/dir/a.txt', '!', { append: true });
    expect((await files.stat('/home/user/dir/a.txt')).sizeBytes).toBe(13);
    await expect(files.write('/home/user/dir/a.txt', '', { exclusive: true })).rejects.toMatchObject({
      code: 'already_exists',
    });
    await files.symlink('/home/user/dir/link', 'a.txt');
    expect((await Array.fromAsync(files.list('/home/user/dir'))).map(({ name }) => name)).toEqual([
      'a.txt',
      'link',
    ]);
    await files.move('/home/user/dir/a.txt', '/home/user/b.txt');
    expect([await files.exists('/home/user/dir/a.txt'), await files.exists('/home/user/b.txt')]).toEqual([
      false,
      true,
    ]);
    expect([await files.mkdir('/home/user/new'), await files.mkdir('/home/user/new')]).toEqual([true, false]);
    await files.chmod('/home/user/b.txt', 0o644);
    await files.remove('/home/user/dir', { recursive: true });
    await expect(files.read('/home/user/dir')).rejects.toMatchObject({ code: 'not_found' });
  });

  it('stream in and out, whole trees too', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const { files } = sandbox;
    const chunks = async function* () {
      for (let index = 0; index < 50; index++) yield Buffer.alloc(10_000, index);
    };
    await files.write('/home/user/tree/big', chunks());
    let bytes = 0;
    for await (const chunk of files.stream('/home/user/tree/big')) bytes += chunk.length;
    expect(bytes).toBe(500_000);
    await files.upload('/home/user/copy', files.download('/home/user/tree'));
    await expect(files.upload('/home/user/copy', './project')).rejects.toMatchObject({
      code: 'invalid_argument',
      hint: expect.stringContaining('uploadDir') as string,
    });
    await expect(uploadDir(files, './no-such-project', 'copy')).rejects.toMatchObject({
      code: 'not_found',
      message: 'Cannot upload "./no-such-project": no such file or directory',
    });
    expect(
      Buffer.from(await files.read('/home/user/copy/big')).equals(
        Buffer.from(await files.read('/home/user/tree/big')),
      ),
    ).toBe(true);
  });

  it('tell what changes', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const seen: string[] = [];
    const abort = new AbortController();
    const watching = (async () => {
      for await (const { path } of sandbox.files.watch('/home/user', { signal: abort.signal })) {
        seen.push(path);
        return;
      }
    })();
    await expect
      .poll(async () => {
        await sandbox.files.write(`/home/user/f${Date.now()}`, 'x');
        return seen.length;
      })
      .toBeGreaterThan(0);
    await watching;
    abort.abort();
  });
});

describe('the connection', () => {
  it('says what is wrong with a key, an address and a request', async () => {
    await expect(Sandbox.create({}, { url: server.url, apiKey: 'e2b_0' })).rejects.toMatchObject({
      code: 'unauthenticated',
      hint: 'set CAY_API_KEY to a key of that server, or pass { apiKey }',
    });
    await expect(Sandbox.create({}, { url: 'http://127.0.0.1:9', apiKey: '' })).rejects.toMatchObject({
      code: 'unavailable',
    });
    await expect(Sandbox.create({ template: '' }, server)).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });

  it('is given up when the signal says so', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const gone = sandbox.exec('sleep 60', { signal: AbortSignal.timeout(50) });
    await expect(gone).rejects.toMatchObject({ code: 'cancelled' });
    const abort = new AbortController();
    const stats = sandbox.watchStats({ intervalMs: 100, signal: abort.signal });
    expect((await stats.next()).done).toBe(false);
    abort.abort();
    await expect(stats.next()).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('reads statistics, events and what the server can do', async () => {
    await using sandbox = await Sandbox.create({}, server);
    expect(await sandbox.stats()).toMatchObject({ pids: expect.any(Number) as number });
    const transport = connect(server);
    expect(await transport.json('GET', '/v1/version')).toMatchObject({ name: 'cay' });
  });
});

describe('ports', () => {
  it('are exposed and hidden', async () => {
    await using sandbox = await Sandbox.create({}, server);
    const exposed = await sandbox.expose(8080);
    expect(exposed).toMatchObject({ port: 8080, visibility: 'private', token: expect.any(String) as string });
    await sandbox.unexpose(8080);
    expect((await sandbox.refresh()).ports).toEqual([]);
  });
});

describe('a sandbox that runs one job', () => {
  it('tells how it stands, is waited for, and its output is read', async () => {
    await using sandbox = await Sandbox.create(
      { cmd: ['sh', '-c', 'echo out; echo err >&2; cat /home/user/go; exit 4'] },
      server,
    );
    expect(sandbox.info.uid).toMatch(/./);
    expect(await sandbox.wait({ timeoutMs: 30_000 })).toMatchObject({
      outcome: 'completed',
      end: { kind: 'exited', exitCode: 4 },
    });
    expect(await sandbox.status()).toMatchObject({
      uid: sandbox.info.uid,
      complete: true,
      failed: 1,
      end: { exitCode: 4 },
    });
    await sandbox.exec('true', { id: 'last' });
    await sandbox.stop();
    const events = await Array.fromAsync(sandbox.logs());
    expect(events.flatMap((event) => (event.type === 'stdout' ? [event.data] : [])).join('')).toBe('out\n');
    expect(events.at(-1)).toMatchObject({ type: 'end', exitCode: 4 });
    const some = await Array.fromAsync(
      sandbox.logs({ since: new Date(sandbox.info.createdAtMs - 60_000), limitBytes: 3, follow: true }),
    );
    expect(some.map((event) => ('data' in event ? event.data : event.type))).toEqual(['started', 'out']);
  });

  it('has the output of the last command if it has none of its own, and no output without any', async () => {
    await using sandbox = await Sandbox.create({}, server);
    expect(await Array.fromAsync(sandbox.logs())).toEqual([]);
    for (const word of ['one', 'two']) await sandbox.exec(`echo ${word}`);
    const events = await Array.fromAsync(sandbox.logs({ tailBytes: 3 }));
    expect(events.flatMap((event) => (event.type === 'stdout' ? [event.data] : [])).join('')).toBe('wo\n');
    await expect(sandbox.wait()).rejects.toMatchObject({ code: 'failed_precondition' });
    await expect(sandbox.wait({ command: 'none' })).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is waited for until a timeout, and until the caller aborts', async () => {
    await using sandbox = await Sandbox.create({ cmd: ['sleep', '1000'] }, server);
    expect(await sandbox.wait({ timeoutMs: 20 })).toMatchObject({
      outcome: 'timed_out',
      status: { active: 1, complete: false },
    });
    await expect(sandbox.wait({ signal: AbortSignal.timeout(20) })).rejects.toMatchObject({
      code: 'cancelled',
    });
    const waiting = sandbox.wait();
    await sandbox.status();
    await sandbox.kill();
    expect(await waiting).toMatchObject({
      outcome: 'lost',
      status: { id: sandbox.id, phase: 'destroying', complete: true },
    });
    await expect(sandbox.wait()).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is waited for over connections that break, and not beyond the time for it', async () => {
    let broken = 0;
    const shaky = {
      ...server,
      fetch: (async (url: string, init) => {
        if (!url.includes('/wait') || ++broken > 3) return fetch(url, init);
        throw new TypeError('fetch failed');
      }) as typeof fetch,
    };
    await using sandbox = await Sandbox.create({ cmd: ['true'] }, shaky);
    expect(await sandbox.wait()).toMatchObject({ outcome: 'completed' });
    expect(broken).toBe(4);
    broken = 0;
    const forgotten = sandbox.exec('sleep 1000', { id: 'unrecorded' }).catch(() => {});
    while ((await sandbox.commands()).length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
    const waiting = sandbox.wait({ command: 'unrecorded' });
    await sandbox.stop();
    expect(await waiting).toMatchObject({
      outcome: 'lost',
      status: { phase: 'stopped', end: { exitCode: 0 } },
    });
    await forgotten;
    broken = -1000;
    await expect(sandbox.wait({ timeoutMs: 250 })).rejects.toMatchObject({ code: 'unavailable' });
  });
});
