/**
 * `process`: NO ISOLATION. The guest and all that it runs are ordinary processes of the machine, started as
 * the user that the server runs as, which means ROOT: they see and may end every other process, use the
 * machine's network and devices, and can leave their root directory. Only for machines on which nothing else
 * works and whose sandboxes are trusted like the server itself; never chosen unless asked for by name.
 *
 * A mount namespace and `chroot` give each its own root directory, so that paths mean the same as elsewhere.
 * Ids are not mapped: the tree has to belong to the ids as they are. Cgroup limits hold.
 */
import { poll } from '../../lib/poll.ts';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { systemReason } from '@cay/sdk/system-error';
import { isAlive, processStat } from '../../lib/proc.ts';
import { RunError, run } from '../../lib/run.ts';
import { GUEST_PATH, OOM_SCORE, SOCKET_DIR } from './bundle.ts';
import type { Container, Runtime, RuntimeProbe } from './runtime.ts';
import { resourceError } from '../resource-error.ts';
import { requireNotRunning } from './require-not-running.ts';

export interface ProcessOptions {
  stateDir: string;
}

const HINT = 'Needs root, and unshare, mount and chroot (util-linux, coreutils)';
const START_TIMEOUT_MS = 10_000;

export function processRuntime({ stateDir }: ProcessOptions): Runtime {
  const root = join(stateDir, 'process');
  const recordFile = (name: string) => join(root, `${name}.json`);
  let probed: Promise<RuntimeProbe> | undefined;

  const status: Runtime['status'] = async (name) => {
    try {
      const { pid, startTime } = JSON.parse(readFileSync(recordFile(name), 'utf8'));
      return isAlive(Number(pid), Number(startTime)) ? 'running' : 'stopped';
    } catch {
      return 'absent';
    }
  };

  async function probeOnce(): Promise<RuntimeProbe> {
    try {
      await run('unshare', ['--mount', '--propagation', 'private', 'chroot', '/', 'true'], {
        timeoutMs: START_TIMEOUT_MS,
      });
      return { available: true, version: 'process (no isolation)' };
    } catch (error) {
      return { available: false, reason: (error as RunError).message, hint: HINT };
    }
  }

  return {
    name: 'process',
    isolation: 'none',
    ids: { hostId: 0, size: 65_536 },
    guestGuards: false,
    probe: () => (probed ??= probeOnce()),
    start: async (container) => {
      requireNotRunning(container.name, await status(container.name));
      mkdirSync(root, { recursive: true });
      try {
        const pid = await launch(container);
        const startTime = processStat(pid)?.startTime ?? 0;
        writeFileSync(recordFile(container.name), JSON.stringify({ pid, startTime }), { mode: 0o600 });
      } catch (error) {
        await container.cgroup.remove();
        rmSync(recordFile(container.name), { force: true });
        throw error;
      }
    },
    status,
    remove: async (name, cgroup) => {
      // The mounts go with the last process in their namespace.
      await cgroup.remove();
      rmSync(recordFile(name), { force: true });
    },
    list: async () => {
      const entries = await readdir(root).catch(() => []);
      return entries
        .filter((entry) => entry.endsWith('.json'))
        .map((entry) => entry.slice(0, -'.json'.length))
        .toSorted();
    },
  };
}

/**
 * Resolves the guest's process number once it is the guest: each step replaces the one before in the same
 * process.
 */
async function launch(container: Container): Promise<number> {
  const log = join(container.bundleDir, 'runtime.log');
  const fd = openSync(log, 'w', 0o600);
  const child = spawn('unshare', ['--mount', '--propagation', 'private', 'sh', '-euc', script(container)], {
    stdio: ['ignore', 'ignore', fd],
    // A session of its own: it outlives the server.
    detached: true,
  });
  closeSync(fd);
  let ended: string | undefined;
  child.on('error', (error) => (ended = systemReason(error)));
  child.on('exit', (code, signal) => (ended = signal ?? `exit code ${code}`));
  child.unref();
  const pid = await poll(
    () => {
      if (ended !== undefined) return 0;
      return child.pid !== undefined && processStat(child.pid)?.name === 'cay-guest' ? child.pid : undefined;
    },
    { timeoutMs: START_TIMEOUT_MS, delayMs: 1 },
  );
  if (pid) return pid;
  child.kill('SIGKILL');
  const words = readFileSync(log, 'utf8').trim().slice(-4_096) || ended || 'it did not start in time';
  throw resourceError(
    'unavailable',
    { kind: 'container', name: container.name },
    (named) => `Cannot start ${named}: process says: ${words}`,
    { hint: HINT },
  );
}

function script(container: Container): string {
  const inside = (path: string) => quote(join(container.rootDir, path));
  const bind = (source: string, target: string, readOnly: boolean) => [
    `mount --bind ${quote(source)} ${inside(target)}`,
    ...(readOnly ? [`mount -o remount,bind,ro ${inside(target)}`] : []),
  ];
  return [
    `echo ${OOM_SCORE} > /proc/self/oom_score_adj`,
    ...container.cgroup.joinPaths.map((dir) => `echo 0 > ${quote(join(dir, 'cgroup.procs'))}`),
    // Only a mount can be made read-only for this namespace alone.
    `mount --bind ${inside('/')} ${inside('/')}`,
    `cd ${inside('/')}`,
    `mkdir -p proc sys dev run tmp ${container.binds.map(({ target }) => inside(target)).join(' ')}`,
    'mount -t proc proc proc',
    ...bind('/sys', '/sys', true),
    'mount --rbind /dev dev',
    'mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run',
    ...(container.readOnlyRoot ? ['mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs tmp'] : []),
    ...container.binds.flatMap(({ source, target, readOnly }) => bind(source, target, readOnly)),
    `mkdir -p run/cay; : > ${inside(GUEST_PATH)}`,
    ...bind(container.socketDir, SOCKET_DIR, true),
    ...(container.cgroup.memoryPath && existsSync(join(container.socketDir, 'cgroup'))
      ? bind(container.cgroup.memoryPath, `${SOCKET_DIR}/cgroup`, true)
      : []),
    ...bind(container.guestBinary, GUEST_PATH, true),
    ...(container.readOnlyRoot ? [`mount -o remount,bind,ro ${inside('/')}`] : []),
    `ulimit -n ${container.openFiles} 2>/dev/null || :`,
    // The log is no place for what a sandbox writes.
    `exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot ${inside('/')} ${GUEST_PATH} dial ${SOCKET_DIR}/guest.sock 2>/dev/null`,
  ].join('\n');
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
