import { R_OK } from 'node:constants';
import { accessSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { Option } from 'commander';
import type { PressureSettings } from '../../control/capacity/pressure.ts';
import type { Policy } from '../../policy/policy.ts';
import { writeFileAtomic } from '../../lib/atomic-file.ts';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { bootId, lowerOomScore, processStat } from '../../lib/proc.ts';
import { backendOption, namesOf } from '../lib/backend-option.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { makeDataDirectory, removeData } from '../lib/data-directory.ts';
import { usageError } from '../lib/failure.ts';
import { imageFlags, imageFlagsOf, withImageOptions, type ImageOptions } from '../lib/image-options.ts';
import { colour, note, print } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { policyFlags, policyOf, withPolicyOptions, type PolicyOptions } from '../lib/policy-options.ts';
import { quotaBoundsOf, quotaFlags, withQuotaOptions, type QuotaOptions } from '../lib/quota-options.ts';
import {
  DEFAULT_LISTEN,
  cliFileOf,
  dataDirOf,
  listenOf,
  lockFileOf,
  readFileOr,
  serverFileOf,
  type CliFile,
  type CommonOptions,
  type ServerFile,
} from '../lib/settings.ts';
import { parseCount, parseSize, parseTimes } from '../lib/units.ts';
import { directoryInUse } from '../../host/directory-in-use.ts';
import type { RunningServer } from '../../serve.ts';
import type { BackendOptions, Composition, DockerSettings, OpenedBackend, Verb } from '../verb.ts';

interface Options extends CommonOptions, PolicyOptions, QuotaOptions, ImageOptions {
  detach?: boolean;
  listen?: string;
  backend: string;
  platformRules?: string;
  pool: number;
  storage?: string;
  dockerHost?: string;
  dockerImage?: string;
  tlsCert?: string;
  tlsKey?: string;
  insecure?: boolean;
  publicUrl?: string;
  previewDomain?: string[];
  corsOrigin?: string[];
  openMetrics?: boolean;
  previewConnections: number;
  addressConnections: number;
  maxCalls: number;
  maxStreams: number;
  keepEvents: number;
  keepEventDays?: number;
  webhookPrivate?: boolean;
  memoryOvercommit?: number;
  diskOvercommit?: number;
  memoryReserve?: number;
  diskReserve?: number;
  reclaim: 'on' | 'off';
  restore?: string;
  logLevel: string;
}

/** When memory runs out the kernel ends sandboxes first, then the server, then what the machine needs. */
const OOM_SCORE = -500;

const many = (text: string, before: string[] = []) => [...before, text];

export const upVerb: Verb = (program, composition) => {
  const command = program
    .command('up')
    .description('start the server')
    .option('-d, --detach', 'in the background; returns when it is ready')
    .option('--listen <host:port>', `where to listen (CAY_LISTEN; default: ${DEFAULT_LISTEN})`)
    .addOption(backendOption(composition, 'what makes the sandboxes'))
    .addOption(
      new Option(
        '--platform-rules <rules>',
        'of several backends, which labels choose which: LABEL=VALUE:NAME, with commas between rules',
      ).env('CAY_PLATFORM_RULES'),
    )
    .addOption(
      new Option('--runtime <name>', 'the isolation of sandboxes that ask for none').env('CAY_RUNTIME'),
    )
    .addOption(
      new Option('--pool <number>', 'sandboxes kept ready').default(2).env('CAY_POOL').argParser(parseCount),
    )
    .addOption(
      new Option('--storage <driver>', 'how files are kept (default: by what the disk is)').env(
        'CAY_STORAGE',
      ),
    )
    .addOption(
      new Option('--docker-host <address>', 'the Docker engine, as unix:///path or tcp://name:port').env(
        'DOCKER_HOST',
      ),
    )
    .addOption(
      new Option('--docker-image <name>', 'what the template "base" is on Docker').env('CAY_DOCKER_IMAGE'),
    )
    .option('--tls-cert <file>', 'certificate in PEM form; needed to listen beyond this machine')
    .option('--tls-key <file>', 'its private key')
    .option('--insecure', 'listen beyond this machine without TLS')
    .option('--public-url <url>', 'how clients reach the server, if not by the address it listens on')
    .option('--preview-domain <domain>', 'a domain whose subdomains are previews; may be repeated', many)
    .option('--cors-origin <origin>', 'an origin whose pages may call the API; may be repeated', many)
    .option('--open-metrics', 'serve the metrics without a key')
    .addOption(
      new Option('--preview-connections <number>', 'connections that visitors may hold open into one sandbox')
        .default(1000)
        .env('CAY_PREVIEW_CONNECTIONS')
        .argParser(parseCount),
    )
    .addOption(
      new Option(
        '--address-connections <number>',
        'connections that one address may hold open; those of this machine are not counted',
      )
        .default(4000)
        .env('CAY_ADDRESS_CONNECTIONS')
        .argParser(parseCount),
    )
    .addOption(
      new Option('--max-calls <number>', 'calls that a project may have under way')
        .default(256)
        .env('CAY_MAX_CALLS')
        .argParser(parseCount),
    )
    .addOption(
      new Option('--max-streams <number>', 'streams and waiting calls that a project may have open')
        .default(1024)
        .env('CAY_MAX_STREAMS')
        .argParser(parseCount),
    )
    .addOption(
      new Option('--keep-events <number>', 'events kept of each project')
        .default(1_000_000)
        .env('CAY_KEEP_EVENTS')
        .argParser(parseCount),
    )
    .addOption(
      new Option('--keep-event-days <days>', 'forget events that are older')
        .env('CAY_KEEP_EVENT_DAYS')
        .argParser(parseCount),
    )
    .option(
      '--webhook-private',
      'let webhooks reach this machine and private networks (CAY_WEBHOOK_PRIVATE=1)',
    )
    .addOption(
      new Option(
        '--memory-overcommit <times>',
        "how many times the machine's memory sandboxes may have as limits in all (default: any)",
      )
        .env('CAY_MEMORY_OVERCOMMIT')
        .argParser(parseTimes),
    )
    .addOption(
      new Option('--disk-overcommit <times>', 'the same of its disk (default: any)')
        .env('CAY_DISK_OVERCOMMIT')
        .argParser(parseTimes),
    )
    .addOption(
      new Option('--memory-reserve <size>', 'memory that no new sandbox gets (default: 256m)')
        .env('CAY_MEMORY_RESERVE')
        .argParser(parseSize),
    )
    .addOption(
      new Option('--disk-reserve <size>', 'disk that no new sandbox gets (default: 256m)')
        .env('CAY_DISK_RESERVE')
        .argParser(parseSize),
    )
    .addOption(
      new Option('--reclaim <on|off>', 'whether idle sandboxes are paused when memory runs short')
        .choices(['on', 'off'])
        .default('on')
        .env('CAY_RECLAIM'),
    )
    .option('--restore <file>', 'start from a backup; there must be no records yet')
    .addOption(
      new Option('--log-level <level>', 'how much is logged')
        .choices(['debug', 'info', 'warn', 'error', 'silent'])
        .default('info')
        .env('CAY_LOG_LEVEL'),
    );
  withCommonOptions(withQuotaOptions(withImageOptions(withPolicyOptions(command))), { json: false }).action(
    async (options: Options) => {
      if (options.url !== undefined)
        throw usageError('"up" starts a server on this machine and takes no --url');
      if ((options.tlsCert === undefined) !== (options.tlsKey === undefined))
        throw usageError('--tls-cert and --tls-key belong together');
      requireReadable('certificate', options.tlsCert);
      requireReadable('private key', options.tlsKey);
      requireReadable('backup', options.restore);
      requireReadable('credentials', options.registryConfig);
      quotaBoundsOf(options);
      imageFlagsOf(options);
      const policy = policyOf(options);
      const { prepareHost } = await import('../lib/prepare-host.ts');
      prepareHost(namesOf(options.backend));
      await (options.detach ? upDetached(composition, options) : upForeground(composition, options, policy));
    },
  );
};

async function upDetached(composition: Composition, options: Options): Promise<void> {
  const [{ startInBackground }, { runningServer }] = await Promise.all([
    import('../lib/background-server.ts'),
    import('../lib/running-server.ts'),
  ]);
  const dataDir = dataDirOf(options);
  const running = runningServer(dataDir);
  if (running) throw taken(dataDir, running.pid);
  const before = readFileOr<CliFile>(cliFileOf(dataDir))?.key;
  const server = await startInBackground(composition, flagsOf(options, dataDir));
  print(`${colour.green('ready')} at ${server.url} (process ${server.pid})`);
  const key = readFileOr<CliFile>(cliFileOf(dataDir))?.key;
  if (key !== undefined && key !== before) printKey(key, dataDir);
}

/** The same flags again, for the process in the background. */
function flagsOf(options: Options, dataDir: string): string[] {
  const flags = [
    '--data',
    dataDir,
    '--backend',
    options.backend,
    '--pool',
    String(options.pool),
    '--log-level',
    options.logLevel,
  ];
  const add = (flag: string, value: string | undefined) => value !== undefined && flags.push(flag, value);
  add('--platform-rules', options.platformRules);
  add('--listen', options.listen);
  add('--runtime', options.runtime);
  add('--storage', options.storage);
  add('--docker-host', options.dockerHost);
  add('--docker-image', options.dockerImage);
  add('--tls-cert', options.tlsCert && resolve(options.tlsCert));
  add('--tls-key', options.tlsKey && resolve(options.tlsKey));
  add('--public-url', options.publicUrl);
  for (const domain of options.previewDomain ?? []) add('--preview-domain', domain);
  for (const origin of options.corsOrigin ?? []) add('--cors-origin', origin);
  if (options.insecure) flags.push('--insecure');
  if (options.openMetrics) flags.push('--open-metrics');
  add('--preview-connections', String(options.previewConnections));
  add('--address-connections', String(options.addressConnections));
  add('--max-calls', String(options.maxCalls));
  add('--max-streams', String(options.maxStreams));
  add('--keep-events', String(options.keepEvents));
  add('--keep-event-days', options.keepEventDays === undefined ? undefined : String(options.keepEventDays));
  if (options.webhookPrivate) flags.push('--webhook-private');
  const number = (flag: string, value: number | undefined) =>
    add(flag, value === undefined ? undefined : String(value));
  number('--memory-overcommit', options.memoryOvercommit);
  number('--disk-overcommit', options.diskOvercommit);
  number('--memory-reserve', options.memoryReserve);
  number('--disk-reserve', options.diskReserve);
  add('--reclaim', options.reclaim);
  add('--restore', options.restore && resolve(options.restore));
  return [...flags, ...policyFlags(options), ...quotaFlags(options), ...imageFlags(options)];
}

async function upForeground(composition: Composition, options: Options, policy: Policy): Promise<void> {
  const dataDir = dataDirOf(options);
  const { host, port } = listenOf(options.listen);
  const made = makeDataDirectory(dataDir);
  const first = !['control', 'engine'].some((name) => existsSync(join(dataDir, name)));
  const { lockFile } = await import('../../lib/file-lock.ts');
  // Taken before the backend is opened: opening sweeps orphans.
  const held = lockFile(lockFileOf(dataDir), { pid: process.pid });
  if (!('lock' in held)) throw taken(dataDir, held.heldBy?.['pid']);
  const [{ serve }, { lastResort }, { serverLog }, { tracingSettings }] = await Promise.all([
    import('../../serve.ts'),
    import('../../api/http/last-resort.ts'),
    import('../lib/server-log.ts'),
    import('../../api/http/tracing/tracing-settings.ts'),
  ]);
  const log = serverLog(options.logLevel);
  if (!lowerOomScore(OOM_SCORE)) log.debug('the OOM score cannot be lowered here');
  if (options.restore !== undefined) {
    const { restoreBackup } = await import('../../control/recovery/backup-archive.ts');
    const { createdAtMs, version } = await restoreBackup(options.restore, join(dataDir, 'control')).catch(
      async (error: unknown) => {
        held.lock.release();
        if (first) await removeData(dataDir, { keepLog: true });
        made.undo();
        throw error;
      },
    );
    log.info({ createdAtMs, version }, 'restored');
  }
  const { openInstallationKey } = await import('../../records/sealing/installation-key.ts');
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
    mkdirSync(join(dataDir, 'control'), { recursive: true, mode: 0o700 });
    const box = openInstallationKey(join(dataDir, 'control'));
    // Runtimes and other programs that the server starts must not inherit the key.
    for (const name of ['CAY_SECRET_KEY', 'CAY_SECRET_KEY_COMMAND']) delete process.env[name];
    backend = await openBackend(composition, options, dataDir, {
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
      backend,
      asPlatform: composition.asPlatform,
      dataDir: join(dataDir, 'control'),
      box,
      host,
      port,
      log,
      ...(options.tlsCert !== undefined && { tls: { certFile: options.tlsCert, keyFile: options.tlsKey! } }),
      insecure: options.insecure,
      publicUrl: options.publicUrl,
      previewDomains: options.previewDomain,
      corsOrigins: options.corsOrigin,
      openMetrics: options.openMetrics,
      previewConnections: options.previewConnections,
      addressConnections: options.addressConnections,
      budgets: { calls: options.maxCalls, streams: options.maxStreams },
      keepEvents: {
        events: options.keepEvents,
        ...(options.keepEventDays !== undefined && { ageMs: options.keepEventDays * 24 * 3600 * 1000 }),
      },
      webhooks: { allowPrivate: options.webhookPrivate ?? process.env['CAY_WEBHOOK_PRIVATE'] === '1' },
      policy,
      quota: quotaBoundsOf(options),
      pressure: pressureOf(options),
      tracing: tracingSettings(process.env, (message) => log.warn(message)),
    });
    const key =
      server.adminKey ?? readFileOr<CliFile>(cliFileOf(dataDir))?.key ?? (await newKey(dataDir, box));
    const docker = namesOf(options.backend).includes('docker') ? { docker: dockerOf(options) } : {};
    const known: CliFile = { url: server.url, key, backend: options.backend, ...docker };
    await writeFileAtomic(cliFileOf(dataDir), JSON.stringify(known), { mode: 0o600 });
    banner(server.url, dataDir, options, server.adminKey);
    const self: ServerFile = {
      pid: process.pid,
      startTime: processStat(process.pid)!.startTime,
      bootId: bootId(),
      url: server.url,
      backend: options.backend,
      startedAtMs: Date.now(),
    };
    await writeFileAtomic(serverFileOf(dataDir), JSON.stringify(self));
    ready = true;
    const signal = await stopSignal();
    log.info({ signal }, 'stopping');
    rmSync(serverFileOf(dataDir), { force: true });
    await server.close();
  } finally {
    // A first start that failed leaves nothing: no sandbox was made, and the next one prepares all of it.
    const undone = first && !ready;
    const closed = undone && options.backend === 'local' ? backend?.destroy() : backend?.close();
    await closed?.catch((error: unknown) => log.error({ err: error }, 'closing the backend'));
    held.lock.release();
    if (undone) await removeData(dataDir, { keepLog: true });
    if (!ready) made.undo();
  }
}

function requireReadable(what: string, file: string | undefined): void {
  if (file === undefined) return;
  try {
    accessSync(file, R_OK);
  } catch (error) {
    throw pathError(`read the ${what}`, file, error);
  }
}

async function openBackend(
  composition: Composition,
  options: Options,
  dataDir: string,
  hooks: Pick<BackendOptions, 'box' | 'policy' | 'onError' | 'onSwept'>,
): Promise<OpenedBackend> {
  const { backend: names, runtime, storage, pool } = options;
  if (namesOf(names).includes('local') && process.getuid?.() !== 0) {
    throw new CayError(
      'failed_precondition',
      'The local backend needs root: it makes namespaces, cgroups and mounts',
      {
        hint: 'run it with sudo; without root "--backend docker" uses a Docker engine you may use, and "--backend memory" imitates sandboxes',
      },
    );
  }
  const docker = dockerOf(options);
  const platformRules = await rulesOf(options);
  const dir = join(dataDir, 'engine');
  return composition.openBackend(names, {
    dir,
    runtime,
    storage,
    docker,
    images: imageFlagsOf(options),
    platformRules,
    poolSize: pool,
    protectServer: true,
    ...probeOf(process.env['CAY_PROBE']),
    ...hooks,
  });
}

/** `off` keeps the server from making sandboxes to find out what works; a number is the delay in seconds. */
function probeOf(text = '10'): Pick<BackendOptions, 'probe'> {
  if (text === 'off') return {};
  if (!/^\d{1,5}$/.test(text))
    throw usageError(`CAY_PROBE is "${text.slice(0, 40)}"`, 'set it to "off" or to a number of seconds');
  return { probe: { delayMs: Number(text) * 1000 } };
}

async function rulesOf({ backend, platformRules }: Options) {
  if (platformRules === undefined || platformRules === '') return undefined;
  if (namesOf(backend).length < 2)
    throw usageError('--platform-rules needs several backends', 'such as --backend local,docker');
  const { parsePlatformRules } = await import('../../backends/composite/platform-rules.ts');
  return parsePlatformRules(platformRules);
}

function pressureOf(options: Options): Partial<PressureSettings> {
  const { memoryOvercommit, diskOvercommit, memoryReserve, diskReserve, reclaim } = options;
  return {
    reclaim: reclaim === 'on',
    ...(memoryOvercommit !== undefined && { memoryOvercommit }),
    ...(diskOvercommit !== undefined && { diskOvercommit }),
    ...(memoryReserve !== undefined && { memoryReserveBytes: memoryReserve }),
    ...(diskReserve !== undefined && { diskReserveBytes: diskReserve }),
  };
}

const dockerOf = ({ dockerHost: host, dockerImage: image }: Options): DockerSettings => ({ host, image });

/** The file with the command line's key was lost: another key replaces it. */
async function newKey(dataDir: string, box: SealedBox): Promise<string> {
  const [{ openDatabase }, { keyRecords }, { projectRecords }] = await Promise.all([
    import('../../records/database.ts'),
    import('../../records/keys.ts'),
    import('../../records/projects.ts'),
  ]);
  const database = openDatabase(join(dataDir, 'control', 'records.db'), box);
  try {
    const project = projectRecords(database).byName('default');
    return keyRecords(database).create({ name: 'cli', project: project!.id, role: 'admin' }).secret;
  } finally {
    database.close();
  }
}

function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, (name: NodeJS.Signals) => resolve(name));
    }
    // A terminal that is closed stops the server, in order.
    process.on('SIGHUP', (name: NodeJS.Signals) => resolve(name));
  });
}

function banner(url: string, dataDir: string, options: Options, adminKey: string | undefined): void {
  if (!process.stderr.isTTY && !process.stdout.isTTY) return;
  note(`${colour.bold('cay')} is ready at ${colour.cyan(url)}`);
  note(`  data     ${dataDir}`);
  note(`  backend  ${backendText(options)}`);
  if (adminKey !== undefined) printKey(adminKey, dataDir);
}

function backendText({ backend, runtime, pool }: Options): string {
  if (backend === 'memory') return 'memory: sandboxes are imitated in the server, without isolation';
  const isolation = runtime ?? 'the strongest isolation it has';
  return `${backend}, ${isolation}${namesOf(backend).includes('local') ? `, ${pool} kept ready` : ''}`;
}

function printKey(key: string, dataDir: string): void {
  print(`  API key  ${key}`);
  note(colour.dim(`           shown this once; the command line finds it in ${cliFileOf(dataDir)}`));
}

function taken(dataDir: string, pid: unknown): CayError {
  const hint = '"cay status" shows it, "cay down" stops it; --data chooses another directory';
  return directoryInUse(dataDir, pid, hint);
}
