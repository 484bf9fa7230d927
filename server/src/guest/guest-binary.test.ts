/** The client against the real guest, run as an ordinary process. */
import { spawn, type ChildProcess } from 'node:child_process';
import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { collect } from './collect.ts';
import type { CommandHandle, Guest, GuestExec } from './guest.ts';
import { guestBinary } from './guest-binary.ts';
import { listenForGuest, type GuestListener } from './listen-for-guest.ts';

let directory: string;
let link: GuestListener;
let child: ChildProcess;
let guest: Guest;
let lastId = 0;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cay-real-'));
  const path = join(directory, 'guest.sock');
  link = await listenForGuest(path, { hello: () => ({ sandbox: 'sbx_a', incarnation: 1 }) });
  child = spawn(guestBinary(), ['dial', path], { stdio: ['ignore', 'ignore', 'inherit'] });
  await link.ready({ timeoutMs: 5000 });
  guest = link.guest;
});
afterAll(async () => {
  const gone = child?.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined;
  if (link?.current) await link.current.shutdown(100).catch(() => child.kill('SIGKILL'));
  else child?.kill('SIGKILL');
  await gone;
  await link?.close();
  await rm(directory, { recursive: true, force: true });
});

function request(more: Partial<GuestExec>): GuestExec {
  return {
    id: `t${++lastId}`,
    env: { PATH: '/usr/bin:/bin' },
    workdir: directory,
    user: String(process.getuid?.() ?? 0),
    ...more,
  };
}

async function run(more: Partial<GuestExec>) {
  const { stdout, stderr, end, truncated } = await collect(await guest.exec(request(more)), {
    maxBytes: 64 * 1024 * 1024,
  });
  return { stdout: stdout.toString(), stderr: stderr.toString(), end, truncated };
}

const user = String(process.getuid?.() ?? 0);

describe('commands of a real guest', () => {
  it('run and end', async () => {
    expect(await run({ argv: ['true'] })).toEqual({
      stdout: '',
      stderr: '',
      end: { kind: 'exited', exitCode: 0 },
      truncated: false,
    });
    expect(await run({ shell: 'echo out; echo err >&2; exit 3' })).toEqual({
      stdout: 'out\n',
      stderr: 'err\n',
      end: { kind: 'exited', exitCode: 3 },
      truncated: false,
    });
    expect((await run({ shell: 'kill -SEGV $$' })).end).toEqual({ kind: 'signalled', signal: 'SIGSEGV' });
    expect((await run({ argv: ['sleep', '60'], timeoutMs: 50 })).end).toEqual({ kind: 'timed_out' });
  });

  it('that cannot be started say why', async () => {
    await expect(guest.exec(request({ argv: ['no-such-program'] }))).rejects.toMatchObject({
      code: 'not_found',
      details: { what: 'command', exitCode: 127 },
    });
    await expect(guest.exec(request({ argv: ['true'], workdir: '/no/such' }))).rejects.toMatchObject({
      details: { what: 'workdir' },
    });
    await expect(guest.exec(request({ argv: ['true'], user: 'no-such-user' }))).rejects.toMatchObject({
      details: { what: 'user' },
    });
  });

  it('are all listed, however long their arguments are', async () => {
    const long = Array.from({ length: 12 }, () => request({ argv: ['true', 'x'.repeat(120_000)] }));
    for (const one of long) await collect(await guest.exec(one), { maxBytes: 10 });
    const listed = new Map((await guest.commands()).map((command) => [command.id, command.argv]));
    for (const { id } of long) expect(listed.get(id)?.[0]).toBe('true');
    for (const { id } of long) await guest.forget(id);
  });

  it('take input, more of it than any buffer holds', async () => {
    const handle = await guest.exec(request({ argv: ['md5sum'], stdin: true }));
    const collecting = collect(handle, { maxBytes: 1000 });
    for (let i = 0; i < 50; i++) await handle.write(Buffer.alloc(100_000, i));
    await handle.closeStdin();
    expect((await collecting).stdout.toString()).toMatch(/^[0-9a-f]{32} /);
    expect((await run({ shell: 'head -c1 >/dev/null' })).end).toEqual({ kind: 'exited', exitCode: 0 });
  });

  it('have a terminal if they want one', async () => {
    const handle = await guest.exec(
      request({ shell: 'stty size; read x; stty size', pty: { cols: 81, rows: 25 } }),
    );
    const collecting = collect(handle, { maxBytes: 1000 });
    await guest.resize(handle.id, { cols: 100, rows: 30 });
    await handle.write(Buffer.from('\n'));
    const { stdout, end } = await collecting;
    expect(end).toEqual({ kind: 'exited', exitCode: 0 });
    expect(stdout.toString()).toContain('30 100');
  });

  it('are found, listed, signalled, attached to and forgotten by their id', async () => {
    const first = await guest.exec(request({ id: 'known', shell: 'echo hello; exec sleep 60' }));
    await first.output[Symbol.asyncIterator]().next();
    const again = await guest.exec(request({ id: 'known', argv: ['true'] }));
    expect([again.existing, again.pid]).toEqual([true, first.pid]);
    expect((await guest.commands()).find((one) => one.id === 'known')).toMatchObject({
      pid: first.pid,
      outputBytes: 6,
      pty: false,
    });
    await expect(guest.forget('known')).rejects.toMatchObject({ code: 'failed_precondition' });
    await guest.signal('known', 'SIGTERM');
    expect(await collect(again, { maxBytes: 100 })).toMatchObject({
      stdout: Buffer.from('hello\n'),
      end: { kind: 'signalled', signal: 'SIGTERM' },
    });
    const late = await guest.attach('known', { offset: 2 });
    expect((await collect(late, { maxBytes: 100 })).stdout.toString()).toBe('llo\n');
    await guest.forget('known');
    await expect(guest.attach('known')).rejects.toMatchObject({ code: 'not_found' });
    await first[Symbol.asyncDispose]();
  });

  it('with the smallest log lose nothing to a slow reader', async () => {
    const handle = await guest.exec(request({ shell: 'head -c 300000 /dev/zero', keepBytes: 4096 }));
    let bytes = 0;
    for await (const chunk of handle.output) {
      if (chunk.channel === 'gap') throw new Error('a gap');
      bytes += chunk.data.length;
      await wait(0);
    }
    expect(bytes).toBe(300_000);
  });

  async function readAll(handle: CommandHandle): Promise<string> {
    let text = '';
    for await (const chunk of handle.output) {
      if (chunk.channel === 'gap') throw new Error(`a gap at ${chunk.offset}`);
      expect(chunk.offset).toBe(text.length);
      text += Buffer.from(chunk.data).toString('latin1');
      if (Math.random() < 0.1) await wait(1);
    }
    return text;
  }

  it('lose and repeat no byte when connections are cut at random', { timeout: 60_000 }, async () => {
    const expected = Array.from({ length: 200_000 }, (_, i) => `${i + 1}\n`).join('');
    for (const keepBytes of [4096, 65_536, undefined]) {
      const handle = await guest.exec(request({ shell: 'seq 1 200000', keepBytes }));
      let cuts = 0;
      let done = false;
      const cutting = (async () => {
        while (!done) {
          await wait(Math.random() * 30);
          if (Math.random() < 0.3) await link.current?.hangup(Math.floor(Math.random() * 10));
          else link.current?.connection.close('cut by the test');
          cuts++;
        }
      })();
      const text = await readAll(handle);
      done = true;
      await cutting;
      expect(text === expected).toBe(true);
      expect(await handle.ended).toEqual({ kind: 'exited', exitCode: 0 });
      expect(cuts).toBeGreaterThan(0);
    }
  });
});

describe('files of a real guest', () => {
  it('are written, read, listed and removed', async () => {
    const files = guest.files(user);
    const path = join(directory, 'deep/er/file');
    const content = Buffer.from(Uint8Array.from({ length: 1_000_000 }, (_, i) => i % 251));
    const written = await files.write(
      path,
      (async function* () {
        for (let at = 0; at < content.length; at += 77_777) yield content.subarray(at, at + 77_777);
      })(),
      { mode: 0o640 },
    );
    expect(written).toMatchObject({ name: 'file', path, type: 'file', sizeBytes: 1_000_000, mode: 0o640 });
    expect((await readFile(path)).equals(content)).toBe(true);
    const { info, data } = await files.read(path, { offset: 10, length: 500_000 });
    expect(info.sizeBytes).toBe(1_000_000);
    const parts: Uint8Array[] = [];
    for await (const chunk of data) parts.push(chunk);
    expect(Buffer.concat(parts).equals(content.subarray(10, 500_010))).toBe(true);
    await expect(files.write(path, Buffer.from('x'), { exclusive: true })).rejects.toMatchObject({
      code: 'already_exists',
    });
    await files.symlink(join(directory, 'deep/link'), 'er/file');
    const listed: string[] = [];
    for await (const entry of files.list(join(directory, 'deep'), { depth: 2 }))
      listed.push(entry.path.slice(directory.length));
    expect(listed).toEqual(['/deep/er', '/deep/er/file', '/deep/link']);
    expect(await files.stat(join(directory, 'deep/link'))).toMatchObject({
      type: 'symlink',
      target: 'er/file',
    });
    expect(await files.mkdir(join(directory, 'deep/er'))).toBe(false);
    await files.chmod(path, 0o600);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    await files.move(path, join(directory, 'deep/moved'));
    await expect(files.remove(join(directory, 'deep'))).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { errno: 'ENOTEMPTY' },
    });
    await files.remove(join(directory, 'deep'), { recursive: true });
    await expect(files.stat(join(directory, 'deep'))).rejects.toMatchObject({
      code: 'not_found',
      details: { errno: 'ENOENT' },
    });
  });

  it('with names that are not UTF-8 are listed', async () => {
    await guest.files(user).mkdir(join(directory, 'odd'));
    await writeFile(Buffer.concat([Buffer.from(`${directory}/odd/a`), Buffer.from([0xff])]), '');
    const names: string[] = [];
    for await (const entry of guest.files(user).list(join(directory, 'odd'))) names.push(entry.name);
    expect(names).toEqual(['a\ufffd']);
  });

  it('travel as tar and back', async () => {
    const files = guest.files(user);
    await files.write(join(directory, 'from/a/b'), Buffer.from('content'));
    const archive = await files.tar(join(directory, 'from'));
    const result = await files.untar(join(directory, 'to'), archive);
    expect(result.entries).toBeGreaterThan(0);
    expect(await readFile(join(directory, 'to/a/b'), 'utf8')).toBe('content');
  });

  it('are watched until the reader stops', async () => {
    const files = guest.files(user);
    await files.mkdir(join(directory, 'watched'));
    const events = await files.watch(join(directory, 'watched'));
    await files.write(join(directory, 'watched/new'), Buffer.from('x'));
    for await (const event of events) {
      if (event.path.endsWith('/new')) break;
    }
  });
});

describe('ports of a real guest', () => {
  it('are connected to, in both directions, and half closed', async () => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      let text = '';
      socket.on('data', (chunk) => (text += chunk.toString()));
      socket.on('end', () => socket.end(text.toUpperCase()));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    try {
      expect(await guest.ports.list()).toContainEqual({ port, address: '127.0.0.1' });
      const connection = await guest.ports.connect(port);
      await connection.write(Buffer.from('hello'));
      await connection.end();
      let text = '';
      for await (const chunk of connection.readable) text += Buffer.from(chunk).toString();
      expect(text).toBe('HELLO');
    } finally {
      server.close();
    }
    await expect(guest.ports.connect(port)).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('are watched', async () => {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const seen: string[] = [];
    for await (const event of guest.ports.watch()) {
      if (event.port !== port) continue;
      seen.push(event.type);
      if (event.type === 'closed') break;
      server.close();
    }
    expect(seen).toEqual(['opened', 'closed']);
  });
});

describe('a real guest', () => {
  it('tells its numbers and leaves no stream open', async () => {
    const client = await link.ready();
    expect(await client.stats()).toMatchObject({
      processes: expect.any(Number),
      uptimeMs: expect.any(Number),
    });
    expect((await client.disk('/')).totalBytes).toBeGreaterThan(0);
    await client.ping();
    // Streams of commands close a moment after their ends.
    await expect.poll(() => client.connection.streams).toBe(0);
  });
});
