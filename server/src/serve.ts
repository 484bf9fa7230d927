/** Puts records, control plane and API together behind one listening port. */
import { mkdirSync, readFileSync } from 'node:fs';
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { isIP, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { pino, type Logger } from 'pino';
import { openArchives, type ArchivesOptions } from './open-archives.ts';
import { acceptHttp2, chooseProtocol, type AcceptedHttp2 } from './api/http/http2/accept-http2.ts';
import { limitConnections } from './api/http/limit-connections.ts';
import { openApi, type Api } from './api/api.ts';
import { errorAnswer } from './api/http/error-answer.ts';
import { previewHost } from './api/preview/preview-address.ts';
import type { TracingSettings } from './api/http/tracing/tracing-settings.ts';
import { DEFAULT_BUDGETS, type BudgetLimits } from './api/http/budgets.ts';
import type { RateLimitOptions } from './api/http/rate-limit.ts';
import type { RequestSpans } from './api/http/tracing/request-spans.ts';
import { REDACTED } from './control/events/redact.ts';
import { refuseUpgrade } from './api/http/refuse-upgrade.ts';
import type { Backend, Orphan } from './backends/backend.ts';
import { openControl } from './control/open-control.ts';
import type { PressureSettings } from './control/capacity/pressure.ts';
import { quotaBounds, type QuotaBounds, type Machine } from './policy/quota-bounds.ts';
import { backup, sweepBackups } from './control/recovery/backup-archive.ts';
import type { EventRetention } from './records/events/events.ts';
import { openServerLeases } from './records/leases/server-leases.ts';
import { openRecords } from './records/open-records.ts';
import type { Records, Transaction } from './records/records.ts';
import { clearCopies } from './records/sealing/clear-copies.ts';
import { KEY_FILE, openInstallationKey } from './records/sealing/installation-key.ts';
import type { BucketOpening } from './bucket-mounts/bucket-mounts.ts';
import type { StartedEgress } from './egress/start-egress.ts';
import type { WebhooksOptions } from './control/events/webhooks/webhooks.ts';
import { lockDirectory } from './host/lock-directory.ts';
import type { SealedBox } from './lib/sealed-box.ts';
import type { Policy } from './policy/policy.ts';
import type { Store } from './storage/store.ts';

export interface ServeOptions {
  /** Opened by the caller; closed with the server. */
  backend: Backend;
  /**
   * Makes a single backend one of several platforms, for the case that records have some on others, which are
   * not there now.
   */
  asPlatform?(backend: Backend): Promise<Backend>;
  dataDir: string;
  /**
   * `postgres://user:password@host:port/database`, where the records are kept. Default: SQLite in the data
   * directory. It has a secret in it.
   */
  database?: string;
  /** Seals secrets in the records. Default: with the key that is given for the data directory. */
  box?: SealedBox;
  /** Default 127.0.0.1. */
  host?: string;
  /** Default 7070; 0 lets the system choose. */
  port?: number;
  /** Paths of PEM files. */
  tls?: { certFile: string; keyFile: string };
  /** Allows to listen beyond this machine without TLS. */
  insecure?: boolean;
  /** Domains whose subdomains are previews; the first is the one shown. `localhost` always is one. */
  previewDomains?: readonly string[];
  /** How clients reach the server, if not by the address it listens on: `https://cay.example.com`. */
  publicUrl?: string;
  corsOrigins?: readonly string[];
  /** For each key. Default 1000 a second, 2000 at once. */
  rateLimit?: RateLimitOptions;
  /** What each project may have under way at once. */
  budgets?: Partial<BudgetLimits>;
  /** How long a request's head and its JSON body may take to arrive. Default 15 s and 5 min. */
  slowestSender?: { headersMs?: number; bodyMs?: number };
  /** Connections that visitors of previews and ports may hold open into one sandbox. Default 1000. */
  previewConnections?: number;
  /** How long an application behind a preview may take until its answer begins. Default 5 min. */
  previewAnswerMs?: number;
  /**
   * Connections that one address of the network may hold open; addresses of this machine are not counted.
   * Default 4000.
   */
  addressConnections?: number;
  /** Whether HTTP/2 is spoken too. Default true. */
  http2?: boolean;
  /** What projects may take that were given no quota, and what none may take more than. */
  quota?: Partial<QuotaBounds>;
  /** How many events of each project are kept, and for how long. */
  keepEvents?: EventRetention;
  /** Lets webhooks reach this machine and private networks, and says how they are tried again. */
  webhooks?: Pick<WebhooksOptions, 'allowPrivate' | 'pace'>;
  /**
   * Where archived sandboxes go, sealed with the installation's key. Default: a directory in the data
   * directory.
   */
  store?: ArchivesOptions;
  /**
   * Endpoints of projects' buckets, as `host` or `host:port`, that may be in private networks or without TLS.
   */
  bucketEndpoints?: readonly string[];
  /** The same as an open store; closed with the server. */
  archives?: Store;
  /**
   * What carries connections out of sandboxes: the backend has to be opened with the same. Closed by the
   * caller.
   */
  egress?: StartedEgress;
  /** Connects the mounts of the backend with the control plane, which opens buckets for them. */
  buckets?: BucketOpening;
  /** What may be asked for. The backend has to be opened with the same. */
  policy?: Policy;
  /** How full the machine may become, and whether room is made. */
  pressure?: Partial<PressureSettings>;
  /** Lets anybody read the metrics. */
  openMetrics?: boolean;
  /** Where spans of requests are sent. None are made without it. */
  tracing?: TracingSettings;
  log?: Logger;
}

export interface RunningServer {
  url: string;
  /** The secret of the first admin key, only when it was just created. */
  adminKey?: string;
  /** Makes another admin key. Resolves its secret. */
  newAdminKey(name: string): Promise<string>;
  /** Tells the server's health of something that went wrong outside of it. */
  noteError(error: unknown): void;
  /** Logs and counts a failure that nothing had caught, and tells the server's health of it. */
  noteUnhandled(error: unknown): void;
  /** Writes an event for each orphan that a sweep removed. */
  noteSwept(orphans: Orphan[]): void;
  close(): Promise<void>;
}

const VERSION = (
  JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8')) as { version: string }
).version;
const HEADERS_MS = 15_000;
const BODY_MS = 300_000;
const PREVIEW_CONNECTIONS = 1000;
const PREVIEW_ANSWER_MS = 300_000;
const ADDRESS_CONNECTIONS = 4000;
const KEEP_ALIVE_MS = 75_000;
const CLOSE_GRACE_MS = 2_000;
const READY_CACHE_MS = 1_000;
const STARTING = new CayError('unavailable', 'The server is starting', { details: { retryAfterMs: 1000 } });

export async function serve(options: ServeOptions): Promise<RunningServer> {
  const { dataDir, host = '127.0.0.1', port = 7070, tls, previewDomains = [], publicUrl } = options;
  const log = options.log ?? pino({ redact: REDACTED });
  requireSafeListening(host, options);
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const lock = lockDirectory(dataDir);
  const undo: (() => void | Promise<void>)[] = [() => lock.release()];
  try {
    const headersTimeout = options.slowestSender?.headersMs ?? HEADERS_MS;
    // How often slow senders are looked for.
    const checking = {
      connectionsCheckingInterval: Math.ceil(headersTimeout / 3),
      shouldUpgradeCallback: isUpgrade,
    };
    const http2 = options.http2 ?? true;
    const server = tls
      ? createHttpsServer({
          ...checking,
          cert: readFileSync(tls.certFile),
          key: readFileSync(tls.keyFile),
          ...(http2 && { ALPNCallback: chooseProtocol }),
        })
      : createHttpServer(checking);
    // Errors that come before `noteError` is set are collected, and noted then.
    const early: unknown[] = [];
    let noteError: (error: unknown) => void = (error) => early.push(error);
    const failed = (where: string) => (error: unknown) => {
      log.error({ err: error }, where);
      noteError(error);
    };
    await sweepBackups(dataDir);
    const box = options.box ?? openInstallationKey(dataDir);
    const records = await openRecords({
      directory: dataDir,
      database: options.database,
      box,
      keepEvents: options.keepEvents,
      onError: failed('records'),
    });
    undo.push(() => records.close());
    const inTheClear = clearCopies(dataDir);
    if (inTheClear.length > 0)
      log.warn(
        { files: inTheClear },
        'copies of old records have secrets in the clear: remove those you do not need',
      );
    const leases = await openServerLeases(records, dataDir, failed('leases'));
    if (leases) undo.push(() => leases.close().catch(failed('leases')));
    const backend = await platformOrBackend(options, records);
    const bounds = quotaBounds(await machineOf(backend), options.quota);
    const adminKey = await firstAdminKey(records);

    const archives =
      options.archives ??
      (await openArchives(options.store ?? {}, { box, dataDir, onError: failed('store') }));
    undo.push(() => archives.close());

    // Listening comes first: what the control plane shows has the address in it.
    let api: Api | undefined;
    server.on('request', (request, response) =>
      api ? api.handle(request, response) : answerStarting(request, response),
    );
    server.on('upgrade', (request, socket, head) =>
      api ? api.upgrade(request, socket, head) : refuseUpgrade(socket, STARTING),
    );
    const admit = limitConnections(server, options.addressConnections ?? ADDRESS_CONNECTIONS);
    const streams = http2
      ? acceptHttp2(server, { headersMs: headersTimeout, idleMs: KEEP_ALIVE_MS, admit })
      : undefined;
    server.headersTimeout = headersTimeout;
    await listen(server, host, port);
    undo.push(() => {
      server.close();
      streams?.destroy();
    });
    const url = addressOf(server, host, tls !== undefined);
    const base = new URL(publicUrl ?? url);
    const previewDomain = `${previewDomains[0] ?? 'localhost'}${base.port === '' ? '' : `:${base.port}`}`;
    const previewUrl = (id: SandboxId, at: number) =>
      `${base.protocol}//${previewHost(id, at, previewDomain)}/`;

    const control = await openControl({
      backend,
      records,
      ...(leases && { leases }),
      quotaBounds: bounds,
      previewUrl,
      archives,
      ...(options.bucketEndpoints && { bucketEndpoints: options.bucketEndpoints }),
      dataDir,
      directories: {
        logs: join(dataDir, 'logs'),
        buildFiles: join(dataDir, 'build-files'),
        stats: join(dataDir, 'stats'),
        enforcement: join(dataDir, 'enforcement'),
      },
      version: VERSION,
      onTemplateMade: (project, ms) => log.info({ project, ms }, 'made the template of the code interpreter'),
      pressure: options.pressure,
      ...(options.egress && { egress: options.egress }),
      ...(options.buckets && { buckets: options.buckets }),
      webhooks: options.webhooks,
      ...(options.policy && { policy: options.policy }),
      takeBackup: ({ signal, withKey }) =>
        backup(
          { records, version: VERSION },
          { scratch: dataDir, signal, keyFile: withKey ? join(dataDir, KEY_FILE) : undefined },
        ),
      // The control plane adds its own errors to its health.
      onError: (error, part) => log.error({ err: error }, part),
    });
    noteError = control.noteError;
    for (const error of early) noteError(error);
    const spans = options.tracing && (await openTracing(options.tracing, log));
    const opened = (api = openApi({
      control,
      log,
      version: VERSION,
      previewDomains,
      previewDomain,
      publicUrl,
      corsOrigins: options.corsOrigins ?? [],
      rateLimit: options.rateLimit ?? { perSecond: 1000, burst: 2000 },
      budgets: { ...DEFAULT_BUDGETS, ...options.budgets },
      bodyTimeoutMs: options.slowestSender?.bodyMs ?? BODY_MS,
      previewConnections: options.previewConnections ?? PREVIEW_CONNECTIONS,
      previewAnswerMs: options.previewAnswerMs ?? PREVIEW_ANSWER_MS,
      openMetrics: options.openMetrics ?? false,
      ...(spans && { spans }),
      ready: readiness(control.ready),
    }));
    log.info({ url, backend: backend.name, dataDir }, 'listening');

    let closing: Promise<void> | undefined;
    return {
      url,
      ...(adminKey !== undefined && { adminKey }),
      newAdminKey: (name) => records.transaction((tx) => adminKeyOf(tx, name)),
      noteError: control.noteError,
      noteUnhandled(error) {
        log.error({ err: error }, 'unhandled: nothing caught this failure');
        opened.unhandled();
        control.noteError(error);
      },
      noteSwept: control.noteSwept,
      close() {
        return (closing ??= (async () => {
          opened.close();
          await closeServer(server, streams);
          await control.close();
          await spans?.close();
          lock.release();
          log.info('closed');
        })());
      },
    };
  } catch (error) {
    for (const step of undo.reverse()) await step();
    throw error;
  }
}

/** What is on a platform that this server does not have must not be taken for gone. */
async function platformOrBackend({ backend, asPlatform }: ServeOptions, records: Records): Promise<Backend> {
  const elsewhere = (await records.platforms.list()).some((platform) => platform !== backend.name);
  return asPlatform && elsewhere && !backend.ability('platforms') ? asPlatform(backend) : backend;
}

/** The secret of the first admin key, if it was made now. Two servers that start at once make one. */
function firstAdminKey(records: Records): Promise<string | undefined> {
  return records.transaction(async (tx) => {
    const isNeeded = !(await tx.keys.list()).some(({ role }) => role === 'admin');
    return isNeeded ? adminKeyOf(tx, 'admin') : undefined;
  });
}

async function adminKeyOf(tx: Transaction, name: string): Promise<string> {
  const project = (await tx.projects.byName('default')) ?? (await tx.projects.create('default'));
  return (await tx.keys.create({ name, project: project.id, role: 'admin' })).secret;
}

/** Loaded only where it is asked for. */
async function openTracing(settings: TracingSettings, log: Logger): Promise<RequestSpans> {
  const [{ otlpExporter }, { requestSpans }] = await Promise.all([
    import('./lib/otlp-exporter.ts'),
    import('./api/http/tracing/request-spans.ts'),
  ]);
  const { url, headers, resource } = settings;
  return requestSpans(
    otlpExporter({
      url,
      headers,
      resource: { 'service.version': VERSION, ...resource },
      scope: { name: 'cay', version: VERSION },
      onDrop: (dropped) => log.warn(dropped, 'spans were dropped'),
    }),
  );
}

function requireSafeListening(host: string, { tls, insecure }: Pick<ServeOptions, 'tls' | 'insecure'>): void {
  const loopback = host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
  if (loopback || tls || insecure) return;
  throw new CayError('failed_precondition', `Cannot listen on "${host}": keys would travel unencrypted`, {
    details: { unencrypted: true },
    hint: 'give a certificate and key for TLS, listen on 127.0.0.1 behind a proxy, or allow it with the insecure option',
  });
}

function listen(server: Server, host: string, port: number): Promise<void> {
  // Slow senders of headers are cut off, and of JSON; streams and answers may take as long as they like.
  server.requestTimeout = 0;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.maxHeadersCount = 100;
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const why = error.code === 'EADDRINUSE' ? 'the port is in use' : systemReason(error);
      reject(
        new CayError('failed_precondition', `Cannot listen on "${host}:${port}": ${why}`, {
          cause: error,
          hint: 'choose another address or stop what listens there',
        }),
      );
    });
    server.listen(port, host, resolve);
  });
}

function addressOf(server: Server, host: string, encrypted: boolean): string {
  const { port } = server.address() as AddressInfo;
  const name =
    host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : isIP(host) === 6 ? `[${host}]` : host;
  return `${encrypted ? 'https' : 'http'}://${name}:${port}`;
}

/** While the control plane finishes what it found, the server is alive and not ready. */
function answerStarting(request: IncomingMessage, response: ServerResponse): void {
  const { status, headers, body } = errorAnswer(STARTING);
  if (request.url === '/healthz')
    response.writeHead(200, { 'Content-Type': 'application/json' }).end('{"alive":true}');
  else
    response.writeHead(status, { ...headers, 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}

/**
 * Some clients ask whether HTTP/2 may follow, and take an answer in HTTP/1 for a no. They speak it by prior
 * knowledge, or over TLS.
 */
function isUpgrade({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase() !== 'h2c';
}

/** Ends what is idle at once, and what is not after a moment. */
async function closeServer(server: Server, streams: AcceptedHttp2 | undefined): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  streams?.close();
  const timer = setTimeout(() => {
    server.closeAllConnections();
    streams?.destroy();
  }, CLOSE_GRACE_MS);
  await closed;
  clearTimeout(timer);
}

/** Asked by anybody, so the answer is kept for a moment. */
function readiness<T>(check: () => Promise<T>): () => Promise<T> {
  let kept: { atMs: number; verdict: Promise<T> } | undefined;
  return () => {
    const atMs = performance.now();
    if (!kept || atMs - kept.atMs > READY_CACHE_MS) kept = { atMs, verdict: check() };
    return kept.verdict;
  };
}

/**
 * What the defaults of quotas depend on. A disk that does not answer counts as one that cannot be measured.
 */
async function machineOf(backend: Backend): Promise<Machine> {
  const { abilities } = await backend.capabilities();
  const capacity = await backend
    .ability('capacity')
    ?.capacity()
    .catch(() => undefined);
  return { pidsLimit: abilities.pidsLimit, diskBytes: capacity?.disk?.totalBytes };
}
