/** Starts the server as a process of its own and waits until it is ready. */
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, renameSync, statSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError } from '@cay/sdk/client';
import { isAlive } from '../../lib/proc.ts';
import { makeDataDirectory, removeData } from './data-directory.ts';
import { errorColour, note } from './output.ts';
import { prepareHost } from './prepare-host.ts';
import { runningServer } from './running-server.ts';
import {
  dataDirOf,
  lockFileOf,
  logFileOf,
  readFileOr,
  type CommonOptions,
  type ServerFile,
} from './settings.ts';
import type { StartedWith } from '../../settings/started-with.ts';
import type { Composition } from '../verb.ts';

const POLL_MS = 15;
const QUIET_MS = 1000;
const START_MS = 120_000;
const MAX_LOG = 64 * 1024 * 1024;

/** Makes sure that this machine's server runs; false if it did already. */
export async function ensureServer(composition: Composition, options: CommonOptions): Promise<boolean> {
  const dataDir = dataDirOf(options);
  if (runningServer(dataDir)) return false;
  const { resolveSettings } = await import('../../settings/resolve-settings.ts');
  const { startedWith } = await import('../../settings/started-with.ts');
  const resolved = resolveSettings({ data: dataDir }, process.env);
  prepareHost(resolved.settings.backend);
  await startInBackground(composition, dataDir, startedWith(resolved, process.env));
  return true;
}

/** Rejects with the error that the server printed if it ends before it is ready. */
export async function startInBackground(
  composition: Composition,
  dataDir: string,
  { args, env }: StartedWith,
): Promise<ServerFile> {
  const made = makeDataDirectory(dataDir);
  const logFile = logFileOf(dataDir);
  if ((statSync(logFile, { throwIfNoEntry: false })?.size ?? 0) > MAX_LOG)
    renameSync(logFile, `${logFile}.1`);
  const log = openSync(logFile, 'a', 0o600);
  const from = statSync(logFile).size;
  const child = spawn(process.execPath, [composition.entry, 'up', ...args], {
    detached: true,
    env,
    cwd: '/',
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  let ended: number | undefined;
  child.on('exit', (code) => (ended = code ?? 1)).on('error', () => (ended = 1));
  child.unref();
  const begun = performance.now();
  let announced = false;
  for (;;) {
    const server = runningServer(dataDir);
    if (server && server.pid === child.pid) return server;
    const waited = performance.now() - begun;
    // Another one may have been quicker: its lock ended ours, and its start is waited for.
    if (ended !== undefined && server) return server;
    if (ended !== undefined && !isStarting(dataDir)) {
      const error = failed(logFile, from);
      if (made.fresh) await removeData(dataDir);
      made.undo();
      throw error;
    }
    if (waited > START_MS)
      throw new CayError('deadline_exceeded', `The server is not ready after ${START_MS / 1000} s`, {
        hint: `its log is ${logFile}`,
      });
    if (!announced && waited > QUIET_MS) {
      announced = true;
      note(errorColour.dim('starting the server in the background; the first time it prepares its storage…'));
    }
    await sleep(POLL_MS);
  }
}

function isStarting(dataDir: string): boolean {
  const pid = readFileOr<{ pid?: number }>(`${lockFileOf(dataDir)}.json`)?.pid;
  return pid !== undefined && isAlive(pid);
}

function failed(logFile: string, from: number): CayError {
  const lines = readFileSync(logFile).subarray(from).toString().trim().split('\n');
  const said = (prefix: string) =>
    lines
      .findLast((line) => line.startsWith(prefix))
      ?.slice(prefix.length)
      .trim();
  return new CayError(
    'unavailable',
    `The server did not start: ${said('error:') ?? lines.at(-1) ?? 'it printed nothing'}`,
    {
      hint: said('hint:') ?? `its log is ${logFile}; "cay doctor" shows what is missing`,
    },
  );
}
