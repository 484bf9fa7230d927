/**
 * The services at a sandbox's own address, as E2B's envd has them: processes, files, health. All but the
 * health need the access token of the sandbox; files also accept an address that was signed with it. For a
 * sandbox that does not run the answer is 502, by which clients know that it is gone.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CayError, ERRORS, UserSchema, type SandboxId } from '@cay/sdk/protocol';
import type { Control, EnteredSandbox } from '../../../control/control.ts';
import { tokenPrincipal } from '../../../control/tenants/principal.ts';
import { malformedPath } from '../../http/malformed-request.ts';
import type { RateLimit } from '../../http/rate-limit.ts';
import { sendJson } from '../../http/send-json.ts';
import { traceOf } from '../../http/trace.ts';
import type { BudgetKind, Budgets, Share } from '../../http/budgets.ts';
import type { AnonymousClients } from '../../http/authenticate.ts';
import type { AutoResume } from '../auto-resume.ts';
import type { AccessTokens } from '../access-tokens.ts';
import { measure } from '../rest/measure.ts';
import { envdError } from '../e2b-error.ts';
import { isE2bSandbox, isReachable } from '../labels.ts';
import { notRunning } from '../not-running.ts';
import { accountReader } from './accounts.ts';
import { invalidUser, type EnvdCaller, type EnvdContext } from './context.ts';
import { envdCredentials, FilesQuery, type Refused } from './credentials.ts';
import { download } from './download.ts';
import { filesystem } from './filesystem.ts';
import { processes } from './processes.ts';
import { envdRpc, isStopped } from './rpc.ts';
import { upload } from './upload.ts';
import { uploads } from './uploads.ts';

export interface EnvdOptions {
  control: Control;
  tokens: AccessTokens;
  resumed: AutoResume;
  budgets: Budgets;
  /** Rate limit of the access token of one sandbox. */
  tokenLimit: RateLimit;
  anonymous: AnonymousClients;
  bodyTimeoutMs: number;
  onRefused: Refused;
}

export interface Envd {
  /** All routes, as method and path. */
  readonly routes: readonly string[];
  /** Never rejects: failures are answers. */
  handle(id: SandboxId, request: IncomingMessage, response: ServerResponse): Promise<void>;
  /** Continues to read the output of commands that an earlier server started. Never rejects. */
  adopt(): Promise<void>;
}

type Plain = (
  row: EnteredSandbox,
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
) => void | Promise<void>;

export function envd(options: EnvdOptions): Envd {
  const { control } = options;
  const { isOpenedBy, requireSigned, requireToken } = envdCredentials(options);
  const written = uploads();
  const process = processes();
  const files = filesystem(written);
  const readAccounts = accountReader();
  const rpc = envdRpc({ ...options, process, files, callerOf, enter });

  /**
   * Counts an authorised request. Throws `resource_exhausted`. Call it after the token was checked, so that
   * anonymous clients take nothing from the budgets of the project.
   */
  function admit(row: EnteredSandbox, response: ServerResponse, kind: BudgetKind): Share {
    // A share of the budget is given back when the client disconnects, which has happened already here.
    if (response.destroyed) throw disconnected();
    const waitMs = options.tokenLimit.take(row.id);
    if (waitMs > 0) {
      throw new CayError('resource_exhausted', 'Too many requests with the access token of this sandbox', {
        details: { retryAfterMs: Math.ceil(waitMs) },
        hint: 'wait as long as Retry-After says',
      });
    }
    return (traceOf(response).share = options.budgets.take(row.project, kind));
  }

  function callerOf(
    row: EnteredSandbox,
    request: IncomingMessage,
    response: ServerResponse,
    user: string | undefined,
  ): EnvdCaller {
    if (user !== undefined && !UserSchema.safeParse(user).success) throw invalidUser(user);
    const gone = new AbortController();
    if (response.destroyed) gone.abort(disconnected());
    else response.once('close', () => gone.abort(disconnected()));
    const caller: EnvdCaller = {
      control,
      principal: tokenPrincipal(row),
      row,
      user,
      headers: request.headers,
      share: traceOf(response).share,
      signal: gone.signal,
      accounts: async () => (await enter(caller)).accounts(),
    };
    return caller;
  }

  async function enter(caller: EnvdCaller): Promise<EnvdContext> {
    const { guest, row } = await control.enter(caller.principal, caller.row.id);
    return { ...caller, row, guest, accounts: () => readAccounts(guest, row) };
  }

  async function file(
    row: EnteredSandbox,
    request: IncomingMessage,
    response: ServerResponse,
    search: URLSearchParams,
  ): Promise<void> {
    const query = FilesQuery.parse(Object.fromEntries(search));
    const operation = request.method === 'POST' ? 'write' : 'read';
    await requireSigned(row, request, operation, query);
    const share = admit(row, response, 'call');
    const carried = async () => {
      await options.resumed(row);
      const context = await enter(callerOf(row, request, response, query.username));
      if (operation === 'write')
        return void sendJson(response, await upload(context, request, written, query.path));
      await download(context, request, response, query.path ?? '');
    };
    await counted(share, carried);
  }

  /** Routes that check their credentials themselves: files accept a signature, and the health needs none. */
  const open: Record<string, Plain> = {
    'GET /health': (_row, _request, response) => void response.writeHead(204).end(),
    'GET /files': (row, request, response, url) => file(row, request, response, url.searchParams),
    'POST /files': (row, request, response, url) => file(row, request, response, url.searchParams),
  };
  const closed: Record<string, Plain> = {
    'GET /envs': (row, _request, response) =>
      void sendJson(response, { E2B_SANDBOX: 'true', ...row.spec.env }),
    async 'GET /metrics'(row, _request, response) {
      const { timestampUnix, cpuCount, cpuUsedPct, memTotal, memUsed, diskUsed, diskTotal } = await measure(
        control,
        tokenPrincipal(row),
        row.id,
      );
      sendJson(response, {
        ts: timestampUnix,
        cpu_count: cpuCount,
        cpu_used_pct: cpuUsedPct,
        mem_total: memTotal,
        mem_used: memUsed,
        disk_used: diskUsed,
        disk_total: diskTotal,
      });
    },
  };

  async function plain(
    row: EnteredSandbox,
    url: URL,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const route = `${request.method} ${url.pathname}`;
    if (Object.hasOwn(open, route)) return open[route]!(row, request, response, url);
    await requireToken(row, request);
    admit(row, response, 'call');
    if (Object.hasOwn(closed, route)) return closed[route]!(row, request, response, url);
    throw new CayError('not_found', `There is no ${request.method} ${url.pathname.slice(0, 200)}`);
  }

  return {
    routes: [...rpc.paths.map((path) => `POST ${path}`), ...Object.keys({ ...open, ...closed })],
    async adopt() {
      // Sandboxes of our own API have such commands only if an E2B client used them, and that client connects
      // again.
      for (const { id } of await control.ids({ state: 'active' })) {
        const row = await control.lookup(id);
        if (!row || !isE2bSandbox(row)) continue;
        // If a guest does not answer, its commands cannot be read. Clients get that error when they ask.
        await control
          .enter(tokenPrincipal(row), row.id)
          .then(({ guest }) => process.adopt(guest, row))
          .catch(() => {});
      }
    },
    async handle(id, request, response) {
      const trace = traceOf(response);
      trace.sandbox = id;
      trace.route = 'e2bEnvd';
      try {
        const problem = malformedPath(request.url ?? '/');
        if (problem) throw problem;
        const url = new URL(request.url ?? '/', 'http://sandbox');
        const kind = rpc.kindOf(url.pathname);
        if (kind) trace.route = `e2b${url.pathname}`;
        // Checked before the sandbox is read. Whether a token is valid takes one read, of its epoch.
        if (!(await isOpenedBy(id, request, url))) options.anonymous.requireTurn(request);
        const row = await control.lookup(id);
        const health = url.pathname === '/health';
        if (!row || !isReachable(row) || (health && row.state === 'paused')) return notRunning(response, id);
        if (kind) {
          await requireToken(row, request);
          const share = admit(row, response, kind);
          await counted(share, (begun) => rpc.answer(row, url.pathname, request, response, begun));
        } else await plain(row, url, request, response);
      } catch (error) {
        if (isStopped(error)) return notRunning(response, id);
        const answer = envdError(error);
        if (answer.cause !== undefined) trace.error = answer.cause;
        if (response.headersSent) response.destroy();
        else
          sendJson(
            response,
            answer.body,
            answer.status,
            answer.status === ERRORS.unauthenticated.status ? {} : answer.headers,
          );
      }
    },
  };
}

function disconnected(): CayError {
  return new CayError('cancelled', 'The caller disconnected');
}

/** Counts work until it is done or its stream is open. */
function counted(share: Share, work: (begun: () => void) => Promise<void>): Promise<void> {
  const begun = Promise.withResolvers<void>();
  const done = work(begun.resolve);
  share.until(Promise.race([begun.promise, done]));
  return done;
}
