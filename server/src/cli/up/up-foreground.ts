/** `cay up`: this process is the server until a signal ends it. */
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import type { Logger } from 'pino';
import { lastResort } from '../../api/http/last-resort.ts';
import type { BucketOpening } from '../../bucket-mounts/bucket-mounts.ts';
import { startEgress, type StartedEgress } from '../../egress/start-egress.ts';
import { writeFileAtomic } from '../../lib/atomic-file.ts';
import { lockFile } from '../../lib/file-lock.ts';
import { bootId, lowerOomScore, processStat } from '../../lib/proc.ts';
import type { Policy } from '../../policy/policy.ts';
import { openInstallationKey } from '../../records/sealing/installation-key.ts';
import { serve, type RunningServer } from '../../serve.ts';
import type { Settings } from '../../settings.ts';
import { givenVariables } from '../../settings/given-variables.ts';
import type { Resolved } from '../../settings/resolve-settings.ts';
import { secretVariables } from '../../settings/started-with.ts';
import { unknownVariables } from '../../settings/unknown-variables.ts';
import { makeDataDirectory, removeData } from '../lib/data-directory.ts';
import { serverLog } from '../lib/server-log.ts';
import {
  cliFileOf,
  dataDirOf,
  lockFileOf,
  readFileOr,
  serverFileOf,
  type CliFile,
  type ServerFile,
} from '../lib/settings.ts';
import type { Composition, OpenedBackend } from '../verb.ts';
import { banner } from './banner.ts';
import { dataDirectoryTaken } from './data-directory-taken.ts';
import { backendOptions, dockerOf, serveOptions } from './serve-options.ts';
import { stopSignal } from './stop-signal.ts';

/** When memory runs out the kernel ends sandboxes first, then the server, then what the machine needs. */
const OOM_SCORE = -500;

export async function upForeground(
  composition: Composition,
  resolved: Resolved,
  policy: Policy,
): Promise<void> {
  const { settings } = resolved;
  const dataDir = dataDirOf(settings);
  const control = join(dataDir, 'control');
  const made = makeDataDirectory(dataDir);
  const first = !['control', 'engine'].some((name) => existsSync(join(dataDir, name)));
  // Taken before the backend is opened: opening sweeps orphans.
  const held = lockFile(lockFileOf(dataDir), { pid: process.pid });
  if (!('lock' in held)) throw dataDirectoryTaken(dataDir, held.heldBy?.['pid']);
  const log = serverLog(settings.logLevel);
  for (const sentence of unknownVariables(process.env)) log.warn(sentence);
  if (!lowerOomScore(OOM_SCORE)) log.debug('the OOM score cannot be lowered here');
  const buckets: BucketOpening = {};
  let egress: StartedEgress | undefined;
  let backend: OpenedBackend | undefined;
  let server: RunningServer | undefined;
  let ready = false;
  using _lastResort = lastResort({
    onUnhandled(error) {
      if (server) server.noteUnhandled(error);
      else log.error({ err: error }, 'unhandled: nothing caught this failure while starting');
    },
    onFatal: (error) => log.fatal({ err: error }, 'the process cannot go on after this failure'),
  });
  try {
    if (settings.restore !== undefined) await restore(settings.restore, control, log);
    mkdirSync(control, { recursive: true, mode: 0o700 });
    const box = openInstallationKey(control);
    // Runtimes and other programs that the server starts must not inherit them.
    for (const name of secretVariables()) delete process.env[name];
    requireRoot(settings);
    egress = await startEgress({
      authorityFile: join(control, 'network-authority'),
      box,
      usual: settings.network,
      maximum: settings.maxNetwork,
      proxy: settings.egressProxy,
    });
    backend = await composition.openBackend(settings.backend.join(','), {
      dir: join(dataDir, 'engine'),
      ...backendOptions(resolved),
      protectServer: true,
      egress: egress.engine,
      buckets,
      box,
      policy,
      onError(error) {
        log.error({ err: error }, 'backend');
        server?.noteError(error);
      },
      onSwept(orphans) {
        log.warn({ orphans }, 'swept orphans');
        server?.noteSwept(orphans);
      },
    });
    server = await serve({
      ...serveOptions(resolved, policy, (message) => log.warn(message)),
      backend,
      asPlatform: composition.asPlatform,
      dataDir: control,
      egress,
      buckets,
      box,
      log,
    });
    const known = readFileOr<CliFile>(cliFileOf(dataDir));
    const key = server.adminKey ?? known?.key ?? (await server.newAdminKey('cli'));
    await writeFileAtomic(cliFileOf(dataDir), JSON.stringify(cliFile(resolved, server.url, key)), {
      mode: 0o600,
    });
    banner(server.url, dataDir, settings, server.adminKey);
    await writeFileAtomic(serverFileOf(dataDir), JSON.stringify(serverFile(settings, server.url)));
    ready = true;
    const signal = await stopSignal();
    log.info({ signal }, 'stopping');
    rmSync(serverFileOf(dataDir), { force: true });
    await server.close();
  } finally {
    // A first start that failed leaves nothing: no sandbox was made, and the next one prepares all of it.
    // A database keeps what was written into it, which needs the key in the data directory.
    const undone = first && !ready && settings.database === undefined;
    const alone = settings.backend.length === 1 && settings.backend[0] === 'local';
    const closed = undone && alone ? backend?.destroy() : backend?.close();
    await closed?.catch((error: unknown) => log.error({ err: error }, 'closing the backend'));
    egress?.engine.close();
    held.lock.release();
    if (undone) await removeData(dataDir, { keepLog: true });
    if (!ready) made.undo();
  }
}

async function restore(file: string, control: string, log: Logger): Promise<void> {
  const { restoreBackup } = await import('../../control/recovery/backup-archive.ts');
  const { createdAtMs, version } = await restoreBackup(file, control);
  log.info({ createdAtMs, version }, 'restored');
}

function requireRoot({ backend }: Settings): void {
  if (!backend.includes('local') || process.getuid?.() === 0) return;
  throw new CayError(
    'failed_precondition',
    'The local backend needs root: it makes namespaces, cgroups and mounts',
    {
      hint: 'run it with sudo; without root "--backend docker" uses a Docker engine you may use, and "--backend memory" imitates sandboxes',
    },
  );
}

/** What the command line needs to find the server, and to find what it made once it is gone. */
function cliFile(resolved: Resolved, url: string, key: string): CliFile {
  const { backend, tlsCert } = resolved.settings;
  const cluster = givenVariables(resolved, 'kubernetes');
  return {
    url,
    key,
    ...(tlsCert !== undefined && { certificate: tlsCert }),
    backend: backend.join(','),
    ...(backend.includes('docker') && { docker: dockerOf(resolved.settings) }),
    ...(Object.keys(cluster).length > 0 && { variables: cluster }),
  };
}

function serverFile({ backend }: Settings, url: string): ServerFile {
  return {
    pid: process.pid,
    startTime: processStat(process.pid)!.startTime,
    bootId: bootId(),
    url,
    backend: backend.join(','),
    startedAtMs: Date.now(),
  };
}
