/**
 * The HTTP API on one port: previews by Host or path, WebSockets by upgrade, everything else by routes. Every
 * request gets an id, a log line, a metric, and security headers.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Control } from '../control/control.ts';
import { callAudit } from './http/audit-calls.ts';
import { knownCallers } from './http/known-callers.ts';
import { authenticator, limitAnonymous, openAnonymousClients, secretOf } from './http/authenticate.ts';
import { openBudgets, type BudgetLimits } from './http/budgets.ts';
import { answerCors } from './http/cors.ts';
import { openE2b, type OwnClaim } from './e2b/e2b.ts';
import { errorAnswer, type ErrorAnswer } from './http/error-answer.ts';
import { inBackground } from '../lib/in-background.ts';
import { networkOf } from '../lib/network-of.ts';
import { inRequest } from './http/current-request.ts';
import { malformed, malformedPath } from './http/malformed-request.ts';
import { openMetrics } from './http/metrics.ts';
import { openApiDocument } from './http/openapi.ts';
import { openConnections } from './preview/open-connections.ts';
import { previewAddresses, type PreviewAddress } from './preview/preview-address.ts';
import { sendPreviewError } from './preview/error-page.ts';
import { previewProxy } from './preview/preview-proxy.ts';
import { rateLimit, type RateLimitOptions } from './http/rate-limit.ts';
import { safePath } from '../control/events/redact.ts';
import { refuseUpgrade } from './http/refuse-upgrade.ts';
import { mcpRoutes } from './mcp/mcp-routes.ts';
import { mount, type Env, type Route } from './http/route.ts';
import { comparisonRoutes } from './rest/comparison.ts';
import { auditRoutes } from './rest/audit.ts';
import { backupRoutes } from './rest/backup.ts';
import { commandRoutes } from './rest/commands.ts';
import { enforcementRoutes } from './rest/enforcement.ts';
import { eventRoutes } from './rest/events.ts';
import { execRoutes } from './rest/exec.ts';
import { fileChangeRoutes } from './rest/file-changes.ts';
import { fileRoutes } from './rest/files.ts';
import { imageRoutes } from './rest/images.ts';
import { bucketRoutes } from './rest/buckets.ts';
import { volumeRoutes } from './rest/volumes.ts';
import { interpreterRoutes } from './rest/interpreter.ts';
import { keyRoutes } from './rest/keys.ts';
import { portRoutes } from './rest/ports.ts';
import { projectRoutes } from './rest/projects.ts';
import { sandboxRoutes } from './rest/sandboxes.ts';
import { snapshotRoutes } from './rest/snapshots.ts';
import { socketRoutes } from './rest/sockets.ts';
import { networkRoutes } from './rest/network.ts';
import { statsRoutes } from './rest/stats.ts';
import { statusRoutes } from './rest/status.ts';
import { systemRoutes } from './rest/system.ts';
import { secretRoutes } from './rest/secrets.ts';
import { webhookRoutes } from './rest/webhooks.ts';
import { buildRoutes } from './rest/builds.ts';
import { templateRoutes } from './rest/templates.ts';
import { toolRoutes } from './rest/tools.ts';
import { travelRoutes } from './rest/travel.ts';
import { sendJson } from './http/send-json.ts';
import { openSockets } from './rest/sockets/sockets.ts';
import { formatTraceparent } from '../lib/trace-context.ts';
import { beginTrace, traceOf, type Trace } from './http/trace.ts';
import type { RequestSpans } from './http/tracing/request-spans.ts';
import { openTurns } from './http/turns.ts';
import { upgradeWatch, type Upgrade } from './http/upgrades.ts';

export interface ApiOptions {
  control: Control;
  log: Logger;
  version: string;
  /** Domains whose subdomains are previews. */
  previewDomains: readonly string[];
  /** The domain that is shown to clients, with the port of the server unless it is the default one. */
  previewDomain: string;
  /** Public address of the server. Default: the address that a client used. */
  publicUrl?: string;
  /** Origins whose pages may call the API; `*` for all. Default none. */
  corsOrigins: readonly string[];
  rateLimit: RateLimitOptions;
  budgets: BudgetLimits;
  /** How long a JSON body may take to arrive. Streams have no such bound. */
  bodyTimeoutMs: number;
  /** Open connections of visitors to one sandbox. */
  previewConnections: number;
  /** How long an application behind a preview may take until its answer begins. */
  previewAnswerMs: number;
  openMetrics: boolean;
  /** Present if requests are traced. */
  spans?: RequestSpans;
  ready(): Promise<{ records: boolean; backend: boolean }>;
}

/** Requests without a valid key, token or signature, of one network address. */
const ANONYMOUS: RateLimitOptions = { perSecond: 200, burst: 2000 };
/**
 * Refusals that anonymous clients can cause at any rate. They are logged at `debug`; the audit writes them
 * once a minute.
 */
const REFUSALS = [401, 429];

export interface Api {
  handle(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Counts a failure that nothing caught. */
  unhandled(): void;
  /** Ends streams and WebSockets. Requests that end by themselves are finished. */
  close(): void;
}

export function openApi(options: ApiOptions): Api {
  const { control, log, version, spans } = options;
  const metrics = openMetrics({ version, control: control.metrics });
  const audit = callAudit(control.events);
  const callers = knownCallers(control.keys);
  const known = authenticator(callers, rateLimit(options.rateLimit));
  const anonymous = openAnonymousClients(rateLimit(ANONYMOUS));
  const authenticate = audit.authenticator(limitAnonymous(known, anonymous));
  const budgets = openBudgets(options.budgets);
  const addresses = previewAddresses(options.previewDomains);
  const carrying = {
    connections: openConnections(options.previewConnections),
    answerMs: options.previewAnswerMs,
  };
  const previews = previewProxy({
    ...carrying,
    control,
    isPrivate: async ({ id, port }) =>
      (await control.lookup(id))?.ports.some(
        (exposed) => exposed.port === port && exposed.visibility === 'private',
      ) === true,
  });
  const e2b = openE2b({
    control,
    previews: carrying,
    publicUrl: options.publicUrl,
    authenticator: authenticate,
    budgets,
    tokenLimit: rateLimit(options.rateLimit),
    anonymous,
    domains: options.previewDomains,
    domain: options.previewDomain,
    bodyTimeoutMs: options.bodyTimeoutMs,
    onFailure: audit.failed,
    onRefused: audit.turnedAway,
    log,
  });
  const sockets = openSockets({ control, authenticator: authenticate, budgets, log });
  const watchUpgrade = upgradeWatch(metrics, spans, (socket) => upgraded.delete(socket));
  const turns = openTurns();
  const open = new Set<ServerResponse>();
  const upgraded = new Set<Duplex>();

  const routes: Route[] = [
    ...systemRoutes({ control, metrics, version, openMetrics: options.openMetrics, ready: options.ready }),
    ...sandboxRoutes(control),
    ...snapshotRoutes(control),
    ...travelRoutes(control),
    ...comparisonRoutes(control),
    ...templateRoutes(control),
    ...buildRoutes(control),
    ...imageRoutes(control),
    ...volumeRoutes(control),
    ...bucketRoutes(control),
    ...execRoutes(control),
    ...commandRoutes(control),
    ...interpreterRoutes(control),
    ...statusRoutes(control),
    ...fileRoutes(control),
    ...toolRoutes(control),
    ...mcpRoutes({
      control,
      version,
      corsOrigins: options.corsOrigins,
      onError: (error) => log.debug({ err: error }, 'mcp'),
    }),
    ...fileChangeRoutes(control),
    ...portRoutes(control),
    ...socketRoutes(control),
    ...statsRoutes(control),
    ...networkRoutes(control),
    ...secretRoutes(control),
    ...enforcementRoutes(control),
    ...eventRoutes(control),
    ...auditRoutes(control),
    ...webhookRoutes(control),
    ...backupRoutes(control),
    ...keyRoutes(control),
    ...projectRoutes(control),
  ];
  const app = new Hono<Env>();
  for (const route of routes)
    mount(app, route, {
      authenticator: authenticate,
      budgets,
      bodyTimeoutMs: options.bodyTimeoutMs,
      onFailure: audit.failed,
    });
  let document: string | undefined;
  app.get('/openapi.json', (context) => {
    traceOf(context.env.outgoing).route = 'openapi';
    return context.body((document ??= JSON.stringify(openApiDocument(routes, { version }))), 200, {
      'Content-Type': 'application/json',
    });
  });
  app.notFound((context) =>
    respond(
      context.env.outgoing,
      new CayError('not_found', `There is no ${context.req.method} ${context.req.path.slice(0, 200)}`),
    ),
  );
  app.onError((error, context) => respond((context.env as Env['Bindings']).outgoing, error));
  const listener = getRequestListener((request, env) => app.fetch(request, env as Env['Bindings']), {
    overrideGlobalObjects: false,
  });

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
        : request.method === 'GET' ||
            request.method === 'HEAD' ||
            (!trace.principal && REFUSALS.includes(response.statusCode))
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

  /** Everything that the request causes belongs to the same trace, also the application behind a preview. */
  function traced(request: IncomingMessage, response: ServerResponse, trace: Trace, by: RequestSpans): void {
    trace.span = by.begin(request);
    const context = formatTraceparent(trace.span);
    request.headers['traceparent'] = context;
    response.setHeader('Traceresponse', context);
  }

  /** Which surface a request is for: a preview, E2B, or the routes of the API (undefined). */
  async function receiverOf(
    request: IncomingMessage,
  ): Promise<{ preview: PreviewAddress } | { claim: OwnClaim } | undefined> {
    const address = addresses.of(request);
    const claim = await e2b.claim(request, address);
    if (claim?.kind === 'preview') return { preview: claim.address };
    if (claim) return { claim };
    return address && { preview: address };
  }

  async function serve(request: IncomingMessage, response: ServerResponse, trace: Trace): Promise<void> {
    const problem = malformed(request, { upgrade: false });
    if (problem) {
      // The next bytes on this connection may not be a request either.
      response.setHeader('Connection', 'close');
      throw problem;
    }
    const receiver = await receiverOf(request);
    if (receiver && 'preview' in receiver) {
      trace.route = 'preview';
      trace.sandbox = receiver.preview.target?.id;
      trace.endless = true;
      // The status of the application says nothing about this server.
      trace.expected = true;
      return previews.handle(receiver.preview, request, response).catch((error: unknown) => {
        if (!isCayError(error) || isCayError(error, 'internal') || response.headersSent) throw error;
        sendPreviewError(receiver.preview, request, response, error);
      });
    }
    if (receiver?.claim.kind === 'port') return e2b.handle(receiver.claim, request, response);
    response.setHeader('X-Content-Type-Options', 'nosniff');
    response.setHeader('X-Frame-Options', 'DENY');
    response.setHeader('Referrer-Policy', 'no-referrer');
    response.setHeader('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'");
    if (receiver && receiver.claim.kind !== 'control') return e2b.handle(receiver.claim, request, response);
    if (answerCors(request, response, options.corsOrigins)) return;
    if (receiver) return e2b.handle(receiver.claim, request, response);
    const malformedTarget = malformedPath(request.url!);
    if (malformedTarget) throw malformedTarget;
    await listener(request, response);
  }

  /** Answers a request that failed. This is the only place that does. */
  function giveUp(response: ServerResponse, error: unknown): void {
    if (!response.headersSent) return void respond(response, error);
    explain(response, error);
    response.destroy();
  }

  function begin(request: IncomingMessage, response: ServerResponse): void {
    // The client may have disconnected while the request waited for its turn.
    if (response.destroyed) return;
    const trace = beginTrace(request, response);
    open.add(response);
    response.once('close', () => {
      open.delete(response);
      trace.share?.release();
      finish(request, response, trace);
    });
    const answer = async () => {
      if (spans) traced(request, response, trace, spans);
      await serve(request, response, trace);
    };
    const fail = (error: unknown) => giveUp(response, error);
    inRequest({ fail }, () => inBackground(answer(), fail));
  }

  /** Who shares a turn with the request: its project, or all requests without a key from its address. */
  function callerOf(request: IncomingMessage): string {
    const secret = secretOf(request);
    const project = secret === undefined ? undefined : callers.projectOf(secret);
    return project ?? networkOf(request.socket.remoteAddress);
  }

  async function upgradeTo(
    request: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    upgrade: Upgrade,
  ): Promise<void> {
    const problem = malformed(request, { upgrade: true });
    if (problem) throw problem;
    const receiver = await receiverOf(request);
    if (!receiver) return sockets.upgrade(request, socket, head, upgrade);
    if ('claim' in receiver) return e2b.upgrade(receiver.claim, request, socket, head, upgrade);
    upgrade.trace.route = 'preview';
    upgrade.trace.sandbox = receiver.preview.target?.id;
    previews.upgrade(receiver.preview, request, socket, head, upgrade);
  }

  return {
    handle(request, response) {
      turns.take(
        () => callerOf(request),
        () => begin(request, response),
      );
    },
    upgrade(request, socket, head) {
      upgraded.add(socket);
      // Node has removed its own listeners by now; each part that follows the socket adds one.
      socket.setMaxListeners(30);
      socket.on('error', () => socket.destroy());
      const upgrade = watchUpgrade(request, socket);
      const refuse = (error: unknown) => {
        const { cause } = errorAnswer(error);
        if (cause !== undefined) log.error({ err: cause, path: safePath(request.url) }, 'upgrade');
        upgrade.refused(refuseUpgrade(socket, error));
      };
      inRequest({ fail: () => socket.destroy() }, () =>
        inBackground(upgradeTo(request, socket, head, upgrade), refuse),
      );
    },
    unhandled: metrics.unhandled,
    close() {
      for (const response of open) if (traceOf(response).endless) response.destroy();
      sockets.close();
      for (const socket of upgraded) socket.destroy();
      metrics.close();
    },
  };
}
