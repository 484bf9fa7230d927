/** A server as a process of its own on a data directory that outlives it: started, killed, stopped and started again. */
import { spawn, type ChildProcess } from 'node:child_process';
import { openSync, rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ended } from '../../support/cay.ts';
import { readFileOr, serverFileOf, cliFileOf, type CliFile, type ServerFile } from '../../../server/src/cli/settings.ts';
import { openClient, type Client } from './client.ts';

const MAIN = join(import.meta.dirname, '../../../server/src/main.ts');
const START_MS = 60_000;

export interface Installation {
  readonly dataDir: string;
  /** Where the backend keeps its things. */
  readonly engineDir: string;
  readonly server: ChildProcess | undefined;
  readonly client: Client;
  /** Starts the server if none runs, with these fault points. Resolves to how long it took until it answered. */
  start(faultPoints?: Record<string, string>): Promise<number>;
  running(): boolean;
  /** Resolves when the process is gone. */
  kill(signal: NodeJS.Signals): Promise<void>;
  destroy(): Promise<void>;
}

export async function openInstallation(runtime: string, env: Record<string, string> = {}): Promise<Installation> {
  const dataDir = await mkdtemp('/tmp/cay-m-');
  const settings = {
    ...process.env,
    CAY_DATA: dataDir,
    CAY_LISTEN: '127.0.0.1:0',
    CAY_RUNTIME: runtime,
    CAY_POOL: '1',
    NO_COLOR: '1',
    ...env,
  };
  const logFile = join(dataDir, 'server.log');
  let server: ChildProcess | undefined;
  let client: Client | undefined;

  const running = () => server !== undefined && server.exitCode === null && server.signalCode === null;

  const installation: Installation = {
    dataDir,
    engineDir: join(dataDir, 'engine'),
    get server() {
      return server;
    },
    get client() {
      if (!client) throw new Error('The server was never started');
      return client;
    },
    running,
    async start(faultPoints) {
      if (running()) return 0;
      const begun = performance.now();
      rmSync(serverFileOf(dataDir), { force: true });
      const log = openSync(logFile, 'a');
      server = spawn(process.execPath, [MAIN, 'up', '--log-level', 'warn'], {
        env: { ...settings, ...(faultPoints && { CAY_FAULT_POINTS: JSON.stringify(faultPoints) }) },
        stdio: ['ignore', log, log],
      });
      while (!readFileOr<ServerFile>(serverFileOf(dataDir))) {
        // One that dies while it starts is what some faults are for.
        if (!running()) return performance.now() - begun;
        if (performance.now() - begun > START_MS) throw new Error(`The server has not started within ${START_MS} ms: see ${logFile}`);
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
    async destroy() {
      await installation.kill('SIGTERM');
      const { code, stderr } = await ended(
        spawn(process.execPath, [MAIN, 'down', '--destroy', '--yes'], { env: settings, stdio: ['ignore', 'pipe', 'pipe'] }),
      );
      if (code !== 0) throw new Error(`"cay down --destroy" failed: ${stderr}`);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
  return installation;
}
