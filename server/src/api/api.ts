/**
 * The HTTP API on one port: previews by Host or path, WebSockets by upgrade, and everything else
 * by the routes. What a request passes through first is the same for all: an id, a log line,
 * a metric, and headers that keep browsers careful.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import { CayError } from '@cay/sdk/protocol';
import type { Builds } from '../control/builds/build.ts';
import type { CommandLogs } from '../control/command-logs/command-logs.ts';
import type { Control } from '../control/control.ts';
import type { Idempotency } from '../control/idempotency.ts';
import type { KeyRecords } from '../control/records/keys.ts';
import type { ProjectRecords } from '../control/records/projects.ts';
import type { Webhooks } from '../control/webhooks/webhooks.ts';
import type { SandboxRecords } from '../control/records/sandboxes.ts';
import { callAudit } from './audit-calls.ts';
import { authenticator } from './authenticate.ts';
import { answerCors } from './cors.ts';
import { openE2b } from './e2b/e2b.ts';
import { errorAnswer, type ErrorAnswer } from './error-answer.ts';
import { openMetrics } from './metrics.ts';
import { openFiles } from './open-files.ts';
import { openApiDocument } from './openapi.ts';
import { previewAddresses } from './preview/preview-address.ts';
import { previewProxy } from './preview/preview-proxy.ts';
import { rateLimit, type RateLimitOptions } from './rate-limit.ts';
import { safePath } from './redact.ts';
import { mount, type Env, type Route } from './route.ts';
import { comparisonRoutes } from './routes/comparison.ts';
import { auditRoutes } from './routes/audit.ts';
import { backupRoutes } from './routes/backup.ts';
import { commandRoutes } from './routes/commands.ts';
import { eventRoutes } from './routes/events.ts';
import { execRoutes } from './routes/exec.ts';
import { fileChangeRoutes } from './routes/file-changes.ts';
import { fileRoutes } from './routes/files.ts';
import { keyRoutes } from './routes/keys.ts';
import { portRoutes } from './routes/ports.ts';
import { projectRoutes } from './routes/projects.ts';
import { sandboxRoutes } from './routes/sandboxes.ts';
import { snapshotRoutes } from './routes/snapshots.ts';
import { socketRoutes } from './routes/sockets.ts';
import { statsRoutes } from './routes/stats.ts';
import { statusRoutes } from './routes/status.ts';
import { systemRoutes } from './routes/system.ts';
import { webhookRoutes } from './routes/webhooks.ts';
import { templateRoutes } from './routes/templates.ts';
import { travelRoutes } from './routes/travel.ts';
import { sendJson } from './send-json.ts';
import { openSockets } from './sockets/sockets.ts';
import { formatTraceparent } from '../lib/trace-context.ts';
import { beginTrace, traceOf, type Trace } from './trace.ts';
import type { RequestSpans } from './tracing/request-spans.ts';
import { upgradeWatch } from './upgrades.ts';

export interface ApiOptions {
  control: Control;
  builds: Builds;
  logs: CommandLogs;
  webhooks: Webhooks;
  /** All records as one archive. */
  backup(signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  keys: KeyRecords;
  projects: ProjectRecords;
  /** For requests that carry no key but what a sandbox itself is reached with. */
  sandboxes: Pick<SandboxRecords, 'get' | 'list'>;
  idempotency: Idempotency;
  /** What the secrets of keys that can be asked for again are derived from. */
  keySecret: Uint8Array;
  /** What the tokens are derived from with which E2B's clients reach a sandbox. */
  e2bSecret: Uint8Array;
  log: Logger;
  version: string;
  /** Domains whose subdomains are previews. */
  previewDomains: readonly string[];
  /** The one shown, with the server's port if that is not the usual one. */
  previewDomain: string;
  /** How clients reach the server, if not by the address that they came by. */
  publicUrl?: string;
  /** Origins whose pages may call the API; `*` for all. None by default. */
  corsOrigins: readonly string[];
  rateLimit: RateLimitOptions;
  /** How long a JSON body may take to arrive. Streams may take as long as they like. */
  bodyTimeoutMs: number;
  openMetrics: boolean;
  /** Present if requests are traced. */
  spans?: RequestSpans;
  ready(): Promise<{ records: boolean; backend: boolean }>;
}

export interface Api {
  handle(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Hangs up on those who follow something; requests that have an end are let finish. */
  close(): void;
}

export function openApi(options: ApiOptions): Api {
  const { control, logs, keys, projects, log, version, spans } = options;
  const metrics = openMetrics({ version, sandboxes: () => control.counts() });
  const audit = callAudit(control.events);
  const authenticate = audit.authenticator(authenticator(keys, rateLimit(options.rateLimit)));
  const addresses = previewAddresses(options.previewDomains);
  const previews = previewProxy(control);
  const e2b = openE2b({
    control,
    builds: options.builds,
    sandboxes: options.sandboxes,
    publicUrl: options.publicUrl,
    authenticator: authenticate,
    secret: options.e2bSecret,
    domains: options.previewDomains,
    domain: options.previewDomain,
    bodyTimeoutMs: options.bodyTimeoutMs,
    onFailure: audit.failed,
    onRefused: audit.turnedAway,
    log,
  });
  const sockets = openSockets({ control, logs, authenticator: authenticate, log });
  const watchUpgrade = upgradeWatch(metrics, spans, (socket) => upgraded.delete(socket));
  const files = openFiles(control);
  const open = new Set<ServerResponse>();
  const upgraded = new Set<Duplex>();

  const routes: Route[] = [
    ...systemRoutes({ control, metrics, version, openMetrics: options.openMetrics, ready: options.ready }),
    ...sandboxRoutes(control),
    ...snapshotRoutes(control),
    ...travelRoutes(control),
    ...comparisonRoutes(control),
    ...templateRoutes(control),
    ...execRoutes(control, logs),
    ...commandRoutes(control, logs),
    ...statusRoutes(control, options.sandboxes, logs),
    ...fileRoutes(control, files),
    ...fileChangeRoutes(control, files),
    ...portRoutes(control),
    ...socketRoutes(control),
    ...statsRoutes(control),
    ...eventRoutes(control),
    ...auditRoutes(control.events),
    ...webhookRoutes(options.webhooks, options.idempotency),
    ...backupRoutes(control.events, options.backup),
    ...keyRoutes({ keys, projects, events: control.events, idempotency: options.idempotency, keySecret: options.keySecret }),
    ...projectRoutes(projects, control.events, options.idempotency),
  ];
  const app = new Hono<Env>();
  for (const route of routes)
    mount(app, route, { authenticator: authenticate, bodyTimeoutMs: options.bodyTimeoutMs, onFailure: audit.failed });
  let document: string | undefined;
  app.get('/openapi.json', (context) => {
    traceOf(context.env.outgoing).route = 'openapi';
    return context.body((document ??= JSON.stringify(openApiDocument(routes, { version }))), 200, { 'Content-Type': 'application/json' });
  });
  app.notFound((context) =>
    respond(context.env.outgoing, new CayError('not_found', `There is no ${context.req.method} ${context.req.path.slice(0, 200)}`)),
  );
  app.onError((error, context) => respond((context.env as Env['Bindings']).outgoing, error));
  const listener = getRequestListener((request, env) => app.fetch(request, env as Env['Bindings']), { overrideGlobalObjects: false });

  function respond(response: ServerResponse, error: unknown): Response {
    const answer = explain(response, error);
    return sendJson(response, answer.body, answer.status, answer.headers);
  }

  function explain(response: ServerResponse, error: unknown): ErrorAnswer {
    const answer = errorAnswer(error);
    if (answer.cause !== undefined) traceOf(response).error = answer.cause;
    return answer;
  }

  function finish(request: IncomingMessage, response: ServerResponse, trace: Trace): void {
    const durationMs = performance.now() - trace.startedAt;
    metrics.request(trace.route, response.statusCode, durationMs / 1000);
    spans?.end(request, trace, response.statusCode);
    const level =
      trace.error !== undefined || (response.statusCode >= 500 && !trace.expected)
        ? 'error'
        : request.method === 'GET' || request.method === 'HEAD'
          ? 'debug'
          : 'info';
    if (!log.isLevelEnabled(level)) return;
    log[level](
      {
        requestId: trace.id,
        method: request.method,
        path: safePath(request.url),
        status: response.statusCode,
        ms: Math.round(durationMs * 100) / 100,
        key: trace.principal?.key,
        ...(trace.error !== undefined && { err: trace.error }),
        ...(!response.writableFinished && { aborted: true }),
      },
      trace.route,
    );
  }

  /** What the request leads to, an application behind a preview among it, goes on in the same trace. */
  function traced(request: IncomingMessage, response: ServerResponse, trace: Trace, by: RequestSpans): void {
    trace.span = by.begin(request);
    const context = formatTraceparent(trace.span);
    request.headers['traceparent'] = context;
    response.setHeader('Traceresponse', context);
  }

  return {
    handle(request, response) {
      const trace = beginTrace(request, response);
      if (spans) traced(request, response, trace, spans);
      open.add(response);
      response.once('close', () => {
        open.delete(response);
        finish(request, response, trace);
      });
      const address = addresses.of(request);
      const claim = e2b.claim(request, address);
      if (claim?.kind === 'port') return e2b.handle(claim, request, response);
      if (address && !claim) {
        trace.route = 'preview';
        trace.sandbox = address.target?.id;
        trace.endless = true;
        previews.handle(address, request, response).catch((error: unknown) => {
          const answer = explain(response, error);
          if (response.headersSent) response.destroy();
          else sendJson(response, answer.body, answer.status, answer.headers);
        });
        return;
      }
      response.setHeader('X-Content-Type-Options', 'nosniff');
      response.setHeader('X-Frame-Options', 'DENY');
      response.setHeader('Referrer-Policy', 'no-referrer');
      response.setHeader('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'");
      if (claim && claim.kind !== 'control') return e2b.handle(claim, request, response);
      if (answerCors(request, response, options.corsOrigins)) return;
      if (claim) return e2b.handle(claim, request, response);
      void listener(request, response);
    },
    upgrade(request, socket, head) {
      upgraded.add(socket);
      const upgrade = watchUpgrade(request, socket);
      const address = addresses.of(request);
      const claim = e2b.claim(request, address);
      if (claim) return e2b.upgrade(claim, request, socket, head, upgrade);
      if (!address) return sockets.upgrade(request, socket, head, upgrade);
      upgrade.trace.route = 'preview';
      upgrade.trace.sandbox = address.target?.id;
      previews.upgrade(address, request, socket, head, upgrade);
    },
    close() {
      for (const response of open) if (traceOf(response).endless) response.destroy();
      sockets.close();
      for (const socket of upgraded) socket.destroy();
      metrics.close();
    },
  };
}
