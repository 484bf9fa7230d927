/**
 * The services at a sandbox's own address, as E2B's envd has them: processes, files, health. All but the
 * health need the access token of the sandbox; files also accept an address that was signed with it. For a
 * sandbox that does not run the answer is 502, by which clients know that it is gone.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CayError, ERRORS, UserSchema, isCayError, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import { bodyOf } from '../../http/request-body.ts';
import type { Control, EnteredSandbox } from '../../../control/control.ts';
import { tokenPrincipal } from '../../../control/tenants/principal.ts';
import { malformedPath } from '../../http/malformed-request.ts';
import type { RateLimit } from '../../http/rate-limit.ts';
import { readJson } from '../../http/read-json.ts';
import { sendJson } from '../../http/send-json.ts';
import { sendLargeJson } from '../../http/send-large-json.ts';
import { traceOf } from '../../http/trace.ts';
import type { BudgetKind, Budgets, Share } from '../../http/budgets.ts';
import type { AnonymousClients } from '../../http/authenticate.ts';
import type { AutoResume } from '../auto-resume.ts';
import { signedFileOf, type AccessTokens } from '../access-tokens.ts';
import { measure } from '../rest/measure.ts';
import { connectError, envdError } from '../e2b-error.ts';
import { isE2bSandbox, isReachable } from '../labels.ts';
import { notRunning } from '../not-running.ts';
import { accountReader } from './accounts.ts';
import { invalidUser, type EnvdCaller, type EnvdContext } from './context.ts';
import { download } from './download.ts';
import { decodeEnvelopes, encodeEnd, encodeEnvelope } from './envelope.ts';
import { filesystem } from './filesystem.ts';
import { processes } from './processes.ts';
import { keepaliveMs, streamOut, type StreamOut } from './stream-out.ts';
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

/** Called for requests without a valid token or signature. */
export type Refused = (
  request: IncomingMessage,
  error: CayError,
  sandbox?: Pick<EnteredSandbox, 'id' | 'project'>,
) => void;

export interface Envd {
  /** All routes, as method and path. */
  readonly routes: readonly string[];
  /** Never rejects: failures are answers. */
  handle(id: SandboxId, request: IncomingMessage, response: ServerResponse): Promise<void>;
  /** Continues to read the output of commands that an earlier server started. Never rejects. */
  adopt(): Promise<void>;
}

const MAX_MESSAGE = 8 * 1024 * 1024;
const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

const FilesQuery = z.object({
  path: z.string().max(4096).optional(),
  username: z.string().max(64).optional(),
  signature: z.string().max(200).optional(),
  signature_expiration: z
    .string()
    .regex(/^\d{1,12}$/)
    .transform(Number)
    .optional(),
});

type Unary = (context: EnvdContext, message: unknown) => Promise<unknown>;
type ServerStream<Context> = (context: Context, message: unknown, out: () => StreamOut) => Promise<void>;
type Plain = (
  row: EnteredSandbox,
  request: IncomingMessage,
  response: ServerResponse,
  url: URL,
) => void | Promise<void>;
type ClientStream = (context: EnvdContext, messages: AsyncIterable<unknown>) => Promise<unknown>;

export function envd(options: EnvdOptions): Envd {
  const { control, tokens } = options;
  const written = uploads();
  const process = processes();
  const files = filesystem(written);
  const readAccounts = accountReader();

  const unary: Record<string, Unary> = {
    '/process.Process/List': (context) => process.list(context),
    '/process.Process/SendInput': process.sendInput,
    '/process.Process/SendSignal': process.sendSignal,
    '/process.Process/CloseStdin': process.closeStdin,
    '/process.Process/Update': process.update,
    '/filesystem.Filesystem/Stat': files.stat,
    '/filesystem.Filesystem/MakeDir': files.makeDir,
    '/filesystem.Filesystem/Move': files.move,
    '/filesystem.Filesystem/ListDir': files.listDir,
    '/filesystem.Filesystem/Remove': files.remove,
    '/filesystem.Filesystem/CreateWatcher': files.createWatcher,
    '/filesystem.Filesystem/GetWatcherEvents': files.getWatcherEvents,
    '/filesystem.Filesystem/RemoveWatcher': files.removeWatcher,
  };
  const inside =
    (call: ServerStream<EnvdContext>): ServerStream<EnvdCaller> =>
    async (caller, message, out) =>
      call(await enter(caller), message, out);
  const serverStreams: Record<string, { keepalive: unknown; call: ServerStream<EnvdCaller> }> = {
    // `start` enters the sandbox by itself.
    '/process.Process/Start': { keepalive: { event: { keepalive: {} } }, call: process.start },
    '/process.Process/Connect': { keepalive: { event: { keepalive: {} } }, call: inside(process.connect) },
    '/filesystem.Filesystem/WatchDir': { keepalive: { keepalive: {} }, call: inside(files.watchDir) },
  };
  const clientStreams: Record<string, ClientStream> = { '/process.Process/StreamInput': process.streamInput };

  async function requireToken(row: EnteredSandbox, request: IncomingMessage): Promise<void> {
    const given = request.headers['x-access-token'];
    if (!(await tokens.isEnvd(row.id, typeof given === 'string' ? given : undefined)))
      throw refused(row, request, UNAUTHORIZED);
  }

  /** Whether the request has a valid token or signature of this sandbox. What it may do is checked later. */
  async function isOpenedBy(id: SandboxId, request: IncomingMessage, url: URL): Promise<boolean> {
    const token = request.headers['x-access-token'];
    if (token !== undefined) return typeof token === 'string' && tokens.isEnvd(id, token);
    const signed = signedFileOf(request.method, url);
    return signed !== undefined && tokens.isSignature(id, signed.file, signed.signature);
  }

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

  function refused(row: EnteredSandbox, request: IncomingMessage, message: string): CayError {
    const error = new CayError('unauthenticated', message);
    options.onRefused(request, error, row);
    return error;
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

  /** `begun` is called when a stream is open. From then on the process is counted, and not the request. */
  async function rpc(
    row: EnteredSandbox,
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
    begun: () => void,
  ): Promise<void> {
    const streaming = path in serverStreams || path in clientStreams;
    const expected = streaming ? 'application/connect+json' : 'application/json';
    if (request.method !== 'POST') return void response.writeHead(405, { Allow: 'POST' }).end();
    if (!(request.headers['content-type'] ?? '').toLowerCase().startsWith(expected)) {
      return void response.writeHead(415, { 'Accept-Post': expected }).end();
    }
    let out: StreamOut | undefined;
    try {
      await options.resumed(row);
      const caller = callerOf(row, request, response, basicUser(request.headers.authorization));
      const admit = (bytes: number) => traceOf(response).share?.parse(bytes);
      const call = unary[path];
      if (call) {
        const message = await readJson(request, {
          maxBytes: MAX_MESSAGE,
          timeoutMs: options.bodyTimeoutMs,
          admit,
          owner: row.project,
        });
        return void (await sendLargeJson(
          response,
          (await call(await enter(caller), message ?? {})) as object,
          row.project,
        ));
      }
      traceOf(response).endless = true;
      const messages = decodeEnvelopes(bodyOf(request), MAX_MESSAGE, { admit, owner: row.project });
      const stream = serverStreams[path];
      if (!stream) {
        const answer = await clientStreams[path]!(await enter(caller), messages);
        response.writeHead(200, { 'Content-Type': expected });
        return void response.end(Buffer.concat([encodeEnvelope(answer), encodeEnd()]));
      }
      const first = await messages.next();
      const opened = () => {
        begun();
        return (out ??= streamOut(response, {
          keepalive: stream.keepalive,
          everyMs: keepaliveMs(request.headers),
        }));
      };
      await stream.call(caller, first.done ? {} : first.value, opened);
    } catch (error) {
      if (isStopped(error) && !response.headersSent) throw error;
      const { status, headers, body, cause } = connectError(error);
      if (cause !== undefined) traceOf(response).error = cause;
      if (out) out.end(body);
      // A stream that fails is a well-formed answer with an error in it. Only unary calls have a status of
      // their own.
      else if (streaming && !response.headersSent)
        response.writeHead(200, { 'Content-Type': expected }).end(encodeEnd(body));
      else sendJson(response, body, status, headers);
    }
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

  async function requireSigned(
    row: EnteredSandbox,
    request: IncomingMessage,
    operation: 'read' | 'write',
    {
      path = '',
      username: user = '',
      signature,
      signature_expiration: expiration,
    }: z.infer<typeof FilesQuery>,
  ): Promise<void> {
    if (request.headers['x-access-token'] !== undefined) return requireToken(row, request);
    if (signature === undefined) throw refused(row, request, 'missing signature query parameter');
    if (
      !(await tokens.isSignature(
        row.id,
        { path, operation, user, ...(expiration !== undefined && { expiration }) },
        signature,
      ))
    ) {
      throw refused(row, request, 'invalid signature');
    }
    if (expiration !== undefined && expiration < Date.now() / 1000)
      throw refused(row, request, 'signature is already expired');
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
    routes: [
      ...Object.keys({ ...unary, ...serverStreams, ...clientStreams }).map((path) => `POST ${path}`),
      ...Object.keys({ ...open, ...closed }),
    ],
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
        const isRpc = [unary, serverStreams, clientStreams].some((table) =>
          Object.hasOwn(table, url.pathname),
        );
        if (isRpc) trace.route = `e2b${url.pathname}`;
        // Checked before the sandbox is read. Whether a token is valid takes one read, of its epoch.
        if (!(await isOpenedBy(id, request, url))) options.anonymous.requireTurn(request);
        const row = await control.lookup(id);
        const health = url.pathname === '/health';
        if (!row || !isReachable(row) || (health && row.state === 'paused')) return notRunning(response, id);
        if (isRpc) {
          await requireToken(row, request);
          const share = admit(row, response, Object.hasOwn(unary, url.pathname) ? 'call' : 'stream');
          await counted(share, (begun) => rpc(row, url.pathname, request, response, begun));
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

/** Whether the sandbox stopped after it was looked up. */
function isStopped(error: unknown): boolean {
  return isCayError(error, 'failed_precondition') && error.details['state'] !== undefined;
}

/** The user name in `Basic`, by which clients name a user. There is no password. */
function basicUser(authorization: string | undefined): string | undefined {
  const encoded =
    authorization === undefined ? undefined : /^Basic +([A-Za-z0-9+/=]{1,256})$/i.exec(authorization)?.[1];
  if (encoded === undefined) return undefined;
  const name = Buffer.from(encoded, 'base64').toString().split(':', 1)[0]!;
  return name === '' ? undefined : name;
}
