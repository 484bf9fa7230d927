/**
 * A server as a process of its own on a data directory that outlives it: started, killed, stopped and started
 * again.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ended } from '../../support/cay.ts';
import {
  readFileOr,
  serverFileOf,
  cliFileOf,
  type CliFile,
  type ServerFile,
} from '../../../server/src/cli/lib/settings.ts';
import { openClient, type Client } from './client.ts';
import { openSmallDisk, type SmallDisk } from './small-disk.ts';

const MAIN = join(import.meta.dirname, '../../../server/src/main.ts');
const COMPILE_CACHE =
  process.env['NODE_COMPILE_CACHE'] ?? join(import.meta.dirname, '../../../node_modules/.cache/cay');
/** Many times what it takes on an idle machine: only one that never starts is a finding. */
const START_MS = 240_000;
const FAKETIME = [
  '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1',
  '/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1',
];

/** What the server's clock is moved with; nothing where it is not installed. */
export const CLOCK_LIBRARY = FAKETIME.find((path) => existsSync(path));

export interface InstallationOptions {
  env?: Record<string, string>;
  /** Puts all of it on a disk of that size. */
  diskBytes?: number;
}

export interface StartOptions {
  /** Armed before it starts, so that they strike while it settles what it finds. */
  faultPoints?: Record<string, string> | undefined;
  /** The server's clock can be set. */
  clock?: boolean;
}

export interface Installation {
  readonly dataDir: string;
  /** Where the backend keeps its things. */
  readonly engineDir: string;
  readonly server: ChildProcess | undefined;
  readonly client: Client;
  readonly disk: SmallDisk | undefined;
  /** Starts the server if none runs. Resolves to how long it took until it answered. */
  start(options?: StartOptions): Promise<number>;
  running(): boolean;
  /** Resolves when the process is gone. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** What happens from now on at which fault points; nothing disarms all. */
  arm(faultPoints?: Record<string, string>): void;
  /** So many seconds away from the true time. */
  setClock(seconds: number): void;
  /** What the servers have logged so far. */
  log(): string;
  destroy(): Promise<void>;
}

export async function openInstallation(
  runtime: string,
  { env, diskBytes }: InstallationOptions = {},
): Promise<Installation> {
  const base = await mkdtemp('/tmp/cay-m-');
  await chmod(base, 0o711);
  const dataDir = join(base, 'data');
  await mkdir(dataDir);
  const disk = diskBytes === undefined ? undefined : await openSmallDisk(dataDir, diskBytes);
  const settings = {
    ...process.env,
    CAY_DATA: dataDir,
    CAY_LISTEN: '127.0.0.1:0',
    CAY_RUNTIME: runtime,
    CAY_POOL: '1',
    // As the launcher does: servers start often here.
    NODE_COMPILE_CACHE: COMPILE_CACHE,
    NO_COLOR: '1',
    ...env,
  };
  const clockFile = join(base, 'clock');
  const clockSettings = {
    LD_PRELOAD: CLOCK_LIBRARY ?? '',
    FAKETIME_TIMESTAMP_FILE: clockFile,
    FAKETIME_NO_CACHE: '1',
    // Time that passed is not the time of day.
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
    NO_FAKE_STAT: '1',
  };
  const faultFile = join(base, 'fault-points');
  const logFile = join(base, 'server.log');
  let server: ChildProcess | undefined;
  let client: Client | undefined;

  const running = () => server !== undefined && server.exitCode === null && server.signalCode === null;

  const installation: Installation = {
    dataDir,
    engineDir: join(dataDir, 'engine'),
    disk,
    get server() {
      return server;
    },
    get client() {
      if (!client) throw new Error('The server was never started');
      return client;
    },
    running,
    async start({ faultPoints, clock } = {}) {
      if (running()) return 0;
      const begun = performance.now();
      rmSync(serverFileOf(dataDir), { force: true });
      installation.setClock(0);
      installation.arm(faultPoints);
      const log = openSync(logFile, 'a');
      server = spawn(process.execPath, [MAIN, 'up', '--log-level', 'warn'], {
        env: { ...settings, ...(clock && clockSettings), CAY_FAULT_POINTS: `@${faultFile}` },
        stdio: ['ignore', log, log],
      });
      while (!readFileOr<ServerFile>(serverFileOf(dataDir))) {
        // One that dies while it starts is what some faults are for.
        if (!running()) return performance.now() - begun;
        if (performance.now() - begun > START_MS)
          throw new Error(`The server has not started within ${START_MS} ms: see ${logFile}`);
        await sleep(20);
      }
      const { url, key } = readFileOr<CliFile>(cliFileOf(dataDir))!;
      client = openClient(url, key);
      return performance.now() - begun;
    },
    async kill(signal) {
      if (!running()) return;
      const gone = new Promise((resolve) => server!.once('exit', resolve));
      server!.kill(signal);
      await gone;
    },
    arm(faultPoints) {
      // Never half of it.
      writeFileSync(`${faultFile}.new`, faultPoints ? JSON.stringify(faultPoints) : '');
      renameSync(`${faultFile}.new`, faultFile);
    },
    setClock: (seconds) => writeFileSync(clockFile, `${seconds < 0 ? '' : '+'}${seconds}\n`),
    log: () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : ''),
    async destroy() {
      await installation.kill('SIGTERM');
      const { code, stderr } = await ended(
        spawn(process.execPath, [MAIN, 'down', '--destroy', '--yes'], {
          env: settings,
          stdio: ['ignore', 'pipe', 'pipe'],
        }),
      );
      if (code !== 0) throw new Error(`"cay down --destroy" failed: ${stderr}`);
      await disk?.destroy();
      await rm(base, { recursive: true, force: true });
    },
  };
  return installation;
}
