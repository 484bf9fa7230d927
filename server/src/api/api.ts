/**
 * The HTTP API on one port. Every request takes its turn, and gets an id, a log line and a metric;
 * `surfaces.ts` says who answers it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import type { Control } from '../control/control.ts';
import { safePath } from '../control/events/redact.ts';
import { inBackground } from '../lib/in-background.ts';
import { networkOf } from '../lib/network-of.ts';
import { formatTraceparent } from '../lib/trace-context.ts';
import { answerFailure } from './http/answer-failure.ts';
import { callAudit } from './http/audit-calls.ts';
import { authenticator, limitAnonymous, openAnonymousClients, secretOf } from './http/authenticate.ts';
import { openBudgets, type BudgetLimits } from './http/budgets.ts';
import { inRequest } from './http/current-request.ts';
import { errorAnswer } from './http/error-answer.ts';
import { knownCallers } from './http/known-callers.ts';
import { requestLog } from './http/log-request.ts';
import { openMetrics } from './http/metrics.ts';
import { rateLimit, type RateLimitOptions } from './http/rate-limit.ts';
import { refuseUpgrade } from './http/refuse-upgrade.ts';
import { beginTrace, traceOf, type Trace } from './http/trace.ts';
import type { RequestSpans } from './http/tracing/request-spans.ts';
import { openTurns } from './http/turns.ts';
import { readOut } from './http/unread-bodies.ts';
import { upgradeWatch } from './http/upgrades.ts';
import { openSurfaces } from './surfaces.ts';

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

export interface Api {
  handle(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Counts a failure that nothing caught. */
  unhandled(): void;
  /** Ends streams and WebSockets. Requests that end by themselves are finished. */
  close(): void;
}

export function openApi(options: ApiOptions): Api {
  const { control, log, spans } = options;
  const metrics = openMetrics({ version: options.version, control: control.metrics });
  const audit = callAudit(control.events);
  const callers = knownCallers(control.keys);
  const anonymous = openAnonymousClients(rateLimit(ANONYMOUS));
  const known = authenticator(callers, rateLimit(options.rateLimit));
  const surfaces = openSurfaces({
    ...options,
    metrics,
    authenticator: audit.authenticator(limitAnonymous(known, anonymous)),
    anonymous,
    budgets: openBudgets(options.budgets),
    tokenLimit: rateLimit(options.rateLimit),
    domains: options.previewDomains,
    domain: options.previewDomain,
    onFailure: audit.failed,
    onRefused: audit.turnedAway,
  });
  const ended = requestLog({ log, metrics, spans });
  const turns = openTurns();
  const open = new Set<ServerResponse>();
  const upgraded = new Set<Duplex>();
  const watchUpgrade = upgradeWatch(metrics, spans, (socket) => upgraded.delete(socket));

  function begin(request: IncomingMessage, response: ServerResponse): void {
    // The client may have disconnected while the request waited for its turn.
    if (response.destroyed) return;
    const trace = beginTrace(request, response);
    open.add(response);
    response.once('finish', () => readOut(request));
    response.once('close', () => {
      open.delete(response);
      trace.share?.release();
      ended(request, response, trace);
    });
    const answer = async () => {
      if (spans) traced(request, response, trace, spans);
      await surfaces.answer(request, response, trace);
    };
    const fail = (error: unknown) => answerFailure(response, error);
    inRequest({ fail }, () => inBackground(answer(), fail));
  }

  /** Who shares a turn with the request: its project, or all requests without a key from its address. */
  function callerOf(request: IncomingMessage): string {
    const secret = secretOf(request);
    const project = secret === undefined ? undefined : callers.projectOf(secret);
    return project ?? networkOf(request.socket.remoteAddress);
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
        inBackground(surfaces.upgrade(request, socket, head, upgrade), refuse),
      );
    },
    unhandled: metrics.unhandled,
    close() {
      for (const response of open) if (traceOf(response).endless) response.destroy();
      surfaces.close();
      for (const socket of upgraded) socket.destroy();
      metrics.close();
    },
  };
}

/** Everything that the request causes belongs to the same trace, also the application behind a preview. */
function traced(request: IncomingMessage, response: ServerResponse, trace: Trace, by: RequestSpans): void {
  trace.span = by.begin(request);
  const context = formatTraceparent(trace.span);
  request.headers['traceparent'] = context;
  response.setHeader('Traceresponse', context);
}
