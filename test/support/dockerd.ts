/**
 * A real Docker engine of the test's own: its own socket, data and containerd in one directory
 * that is removed with it, no network. There may be no registry, so images are made of this
 * machine's own programs.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream, existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { promisify } from 'node:util';
import { type HostImageExtras, hostImageTar } from './host-image.ts';

const run = promisify(execFile);
const START_MS = 30_000;

export interface Dockerd {
  readonly socketPath: string;
  /** As `DOCKER_HOST` has it. */
  readonly host: string;
  readonly directory: string;
  /** Makes an image of the given name from this machine's shell, coreutils and Python, and what is added. */
  importBaseImage(name?: string, extras?: HostImageExtras): Promise<void>;
  /**
   * Sends the engine a signal and waits for its end. Containers live on if it was started with `liveRestore`.
   */
  halt(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** Starts it again after `halt`. */
  resume(): Promise<void>;
  /** Ends it with all its containers, and removes everything it had. */
  stop(): Promise<void>;
}

/** Why no engine can be started here, or `undefined` if one can. */
export function whyNoDockerd(): string | undefined {
  if (process.getuid?.() !== 0) return 'dockerd needs root';
  for (const program of ['dockerd', 'containerd', 'runc']) {
    const found = (process.env['PATH'] ?? '')
      .split(':')
      .concat('/usr/sbin', '/sbin')
      .some((directory) => existsSync(`${directory}/${program}`));
    if (!found) return `${program} is not installed`;
  }
  return undefined;
}

export interface DockerdOptions {
  /** Containers outlive the engine. */
  liveRestore?: boolean;
  /** Keeps its data on a btrfs of that many bytes, made for it, whose driver can limit disks. */
  btrfsBytes?: number;
  /** A bridge that is there already. Without it containers have no network. */
  bridge?: string;
  /** Further runtimes by name, each a program. */
  runtimes?: Record<string, string>;
}

export async function startDockerd(options: DockerdOptions = {}): Promise<Dockerd> {
  const directory = await mkdtemp('/tmp/cay-docker-');
  const socketPath = `${directory}/docker.sock`;
  let engine: ChildProcess | undefined;
  // A test runner that is interrupted must not leave an engine behind.
  const lastResort = () => engine?.kill('SIGTERM');
  process.once('exit', lastResort);

  async function start(): Promise<void> {
    await rm(`${directory}/pid`, { force: true });
    // A containerd that is dead but not yet reaped would be waited for in vain.
    await rm(`${directory}/exec/containerd/containerd.pid`, { force: true });
    const log = createWriteStream(`${directory}/log`, { flags: 'a' });
    const child = spawn(
      'dockerd',
      [
        `--host=unix://${socketPath}`,
        `--data-root=${directory}/data`,
        `--exec-root=${directory}/exec`,
        `--pidfile=${directory}/pid`,
        `--bridge=${options.bridge ?? 'none'}`,
        '--iptables=false',
        '--ip-forward=false',
        '--shutdown-timeout=2',
        ...(options.liveRestore ? ['--live-restore'] : []),
        ...Object.entries(options.runtimes ?? {}).map(([name, path]) => `--add-runtime=${name}=${path}`),
        ...(options.btrfsBytes ? ['--storage-driver=btrfs'] : []),
      ],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
      },
    );
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log);
    engine = child;
    const deadline = Date.now() + START_MS;
    while ((await call('GET', '/_ping').catch(() => 0)) !== 200) {
      if (child.exitCode !== null || Date.now() > deadline) {
        throw new Error(`dockerd did not start:\n${readFileSync(`${directory}/log`, 'utf8').slice(-2000)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Resolves with the status. */
  function call(method: string, path: string, body?: NodeJS.ReadableStream): Promise<number> {
    return new Promise((resolve, reject) => {
      const sent = request({ socketPath, method, path, headers: { Host: 'docker' } }, (answer) => {
        answer.resume();
        answer.on('end', () => resolve(answer.statusCode ?? 0));
        answer.on('error', reject);
      });
      sent.on('error', reject);
      if (body) body.pipe(sent);
      else sent.end();
    });
  }

  async function halt(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = engine;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await ended;
    engine = undefined;
    // Its containerd dies with it, a little later; an engine that is started before that would wait for it in
    // vain.
    await untilGone(() =>
      belongings(directory).then((lines) => lines.filter((line) => !line.includes('containerd-shim'))),
    );
  }

  const self: Dockerd = {
    socketPath,
    host: `unix://${socketPath}`,
    directory,
    async importBaseImage(name = 'base', extras = {}) {
      const archive = await hostImageTar(extras);
      const status = await call(
        'POST',
        `/images/create?fromSrc=-&repo=${encodeURIComponent(name)}&tag=latest`,
        archive.stdout,
      );
      if (status !== 200) throw new Error(`Docker did not import the image: status ${status}`);
      await archive.done;
    },
    halt,
    resume: start,
    async stop() {
      await halt();
      await killStragglers(directory);
      await unmountBelow(directory);
      await rm(directory, { recursive: true, force: true, maxRetries: 5 });
      process.removeListener('exit', lastResort);
    },
  };
  try {
    if (options.btrfsBytes) {
      await mkdir(`${directory}/data`);
      await writeFile(`${directory}/disk`, '');
      await truncate(`${directory}/disk`, options.btrfsBytes);
      await run('mkfs.btrfs', ['-q', `${directory}/disk`]);
      await run('mount', ['-o', 'loop', `${directory}/disk`, `${directory}/data`]);
    }
    await start();
  } catch (error) {
    await self.stop();
    throw error;
  }
  return self;
}

/** Processes that were started for this engine: its containerd, and the shims of containers that run. */
async function belongings(directory: string): Promise<string[]> {
  const { stdout } = await run('ps', ['-eo', 'pid=,args=']);
  return stdout.split('\n').filter((line) => line.includes(`${directory}/`) && line.includes('containerd'));
}

async function untilGone(look: () => Promise<string[]>): Promise<void> {
  const deadline = Date.now() + 10_000;
  while ((await look()).length > 0 && Date.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 50));
}

/** Ends what belongs to this engine and outlived it. */
async function killStragglers(directory: string): Promise<void> {
  for (let round = 0; round < 50; round++) {
    const mine = await belongings(directory);
    if (mine.length === 0) return;
    for (const line of mine) {
      const pid = Number.parseInt(line, 10);
      try {
        await killChildren(pid);
        process.kill(pid, round < 10 ? 'SIGTERM' : 'SIGKILL');
      } catch {
        // It ended by itself meanwhile.
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** A shim's children are the containers; it ends when they have. */
async function killChildren(pid: number): Promise<void> {
  const { stdout } = await run('ps', ['-o', 'pid=,comm=', '--ppid', String(pid)]).catch(() => ({
    stdout: '',
  }));
  for (const line of stdout.split('\n').filter((each) => each.trim() !== '' && !each.includes('containerd')))
    process.kill(Number.parseInt(line, 10), 'SIGKILL');
}

async function unmountBelow(directory: string): Promise<void> {
  const mounts = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '');
  for (const mount of mounts.filter((path) => path.startsWith(`${directory}/`)).reverse())
    await run('umount', ['-l', mount]).catch(() => {});
}
