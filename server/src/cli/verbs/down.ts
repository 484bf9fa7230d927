import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Bucket, CayError } from '@cay/sdk/client';
import type { ClusterSettings } from '../../backends/kubernetes/cluster-settings.ts';
import { isAlive } from '../../lib/proc.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { confirm } from '../lib/confirm.ts';
import { removeData } from '../lib/data-directory.ts';
import { usageError } from '../lib/failure.ts';
import { note, print } from '../lib/output.ts';
import { runningServer } from '../lib/running-server.ts';
import {
  cliFileOf,
  dataDirOf,
  logFileOf,
  readFileOr,
  type CliFile,
  type CommonOptions,
} from '../lib/settings.ts';
import type { Composition, Verb } from '../verb.ts';

interface Options extends CommonOptions {
  destroy?: boolean;
  force?: boolean;
  yes?: boolean;
}

const STOP_MS = 30_000;

export const downVerb: Verb = (program, composition) => {
  const command = program
    .command('down')
    .description('stop the server; sandboxes go on and are found again by the next one')
    .option('--destroy', 'also remove every sandbox and all data')
    .option(
      '-f, --force',
      'with --destroy: also if files of mounted buckets are not written yet; they are lost',
    )
    .option('-y, --yes', 'do not ask');
  withCommonOptions(command, { json: false }).action(async (options: Options) => {
    if (options.url !== undefined)
      throw usageError('"down" stops the server of this machine and takes no --url');
    const dataDir = dataDirOf(options);
    if (options.destroy) await confirm(`Remove every sandbox and all data in ${dataDir}?`, options);
    const keeps = options.destroy === true && options.force !== true;
    if (keeps) await writeBuckets(composition, dataDir, options);
    const stopped = await stopServer(dataDir);
    // What was written since then.
    if (keeps) await requireWritten(composition, dataDir);
    if (!options.destroy) {
      print(
        stopped
          ? `stopped the server (process ${stopped}); its sandboxes go on`
          : `no server runs for ${dataDir}`,
      );
      return;
    }
    await destroyAll(composition, dataDir);
    print(`removed all sandboxes and data of ${dataDir}`);
    if (process.env['CAY_DATABASE'])
      note(
        'the records in the database of CAY_DATABASE stay; their secrets were sealed with a key that is gone',
      );
  });
};

/** Has the server write what buckets lack, as far as it runs. Rejects with what they still lack. */
async function writeBuckets(composition: Composition, dataDir: string, options: Options): Promise<void> {
  const unwritten = await composition.unwrittenFiles(join(dataDir, 'engine'));
  if (unwritten.length === 0) return;
  if (runningServer(dataDir)) {
    const connection = openClient(options).options;
    const sandboxes = [...new Set(unwritten.map(({ sandbox }) => sandbox))];
    // What cannot be written is found below.
    await Promise.allSettled(sandboxes.map((sandbox) => Bucket.sync(sandbox, connection)));
  }
  await requireWritten(composition, dataDir);
}

async function requireWritten(composition: Composition, dataDir: string): Promise<void> {
  const unwritten = await composition.unwrittenFiles(join(dataDir, 'engine'));
  if (unwritten.length === 0) return;
  const shown = unwritten
    .slice(0, 3)
    .map(({ sandbox, bucket, path }) => `"${path}" of ${sandbox} (${bucket})`);
  const more = unwritten.length > 3 ? ` and ${unwritten.length - 3} more` : '';
  throw new CayError(
    'failed_precondition',
    `Cannot remove everything in ${dataDir}: files that sandboxes have written are not in their buckets: ${shown.join(', ')}${more}`,
    {
      details: { unwritten: unwritten.slice(0, 100) },
      hint: 'start the server, and see with "cay bucket status SANDBOX" why; to give the files up: cay down --destroy --force',
    },
  );
}

async function stopServer(dataDir: string): Promise<number | undefined> {
  const server = runningServer(dataDir);
  if (!server) return undefined;
  process.kill(server.pid, 'SIGTERM');
  for (const deadline = performance.now() + STOP_MS; isAlive(server.pid, server.startTime);) {
    if (performance.now() > deadline) {
      throw new CayError(
        'deadline_exceeded',
        `The server (process ${server.pid}) has not ended after ${STOP_MS / 1000} s`,
        {
          hint: `its log is ${logFileOf(dataDir)}; "kill -9 ${server.pid}" ends it, and its sandboxes are found again`,
        },
      );
    }
    await sleep(20);
  }
  return server.pid;
}

/** First what the backend has elsewhere, such as mounts, cgroups and containers; then our own files. */
async function destroyAll(composition: Composition, dataDir: string): Promise<void> {
  const engine = join(dataDir, 'engine');
  const { backend: name = 'local', docker, variables } = readFileOr<CliFile>(cliFileOf(dataDir)) ?? {};
  if (existsSync(engine) || name !== 'local') {
    const backend = await composition.openBackend(name, {
      dir: engine,
      docker,
      ...(variables && { cluster: await clusterIn(variables) }),
      poolSize: 0,
    });
    await backend.destroy();
  }
  await removeData(dataDir);
}

async function clusterIn(variables: Record<string, string>): Promise<ClusterSettings> {
  const [{ settingsIn }, { clusterOf }] = await Promise.all([
    import('../../settings/resolve-settings.ts'),
    import('../../settings/cluster-of.ts'),
  ]);
  return clusterOf(settingsIn({ ...process.env, ...variables }));
}
