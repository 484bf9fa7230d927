/** The calls of E2B's envd in Connect's protocol: unary, and streams of either side. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { EnteredSandbox } from '../../../control/control.ts';
import type { BudgetKind } from '../../http/budgets.ts';
import { readBody } from '../../http/read-json.ts';
import { bodyOf } from '../../http/request-body.ts';
import { sendJson } from '../../http/send-json.ts';
import { traceOf } from '../../http/trace.ts';
import type { AutoResume } from '../auto-resume.ts';
import { connectError } from '../e2b-error.ts';
import { codecOf, contentTypes, type Codec } from './codec.ts';
import type { EnvdCaller, EnvdContext } from './context.ts';
import { decodeEnvelopes, encodeEnd, encodeEnvelope } from './envelope.ts';
import type { filesystem } from './filesystem.ts';
import type { processes } from './processes.ts';
import { keepaliveMs, streamOut, type StreamOut } from './stream-out.ts';

type Unary = (context: EnvdContext, message: unknown) => Promise<unknown>;
type ServerStream<Context> = (context: Context, message: unknown, out: () => StreamOut) => Promise<void>;
type ClientStream = (context: EnvdContext, messages: AsyncIterable<unknown>) => Promise<unknown>;

export interface RpcOptions {
  process: ReturnType<typeof processes>;
  files: ReturnType<typeof filesystem>;
  resumed: AutoResume;
  bodyTimeoutMs: number;
  callerOf(
    row: EnteredSandbox,
    request: IncomingMessage,
    response: ServerResponse,
    user: string | undefined,
  ): EnvdCaller;
  enter(caller: EnvdCaller): Promise<EnvdContext>;
}

export interface EnvdRpc {
  readonly paths: readonly string[];
  /** What a call of this path is counted as. Absent: it is no call. */
  kindOf(path: string): BudgetKind | undefined;
  /**
   * `begun` is called when a stream is open. From then on the process is counted, and not the request.
   * Rejects if the sandbox has stopped before anything was answered; other failures are answers.
   */
  answer(
    row: EnteredSandbox,
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
    begun: () => void,
  ): Promise<void>;
}

const MAX_MESSAGE = 8 * 1024 * 1024;

export function envdRpc({ process, files, ...options }: RpcOptions): EnvdRpc {
  const { callerOf, enter } = options;
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

  async function answer(
    row: EnteredSandbox,
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
    begun: () => void,
  ): Promise<void> {
    const streaming = path in serverStreams || path in clientStreams;
    if (request.method !== 'POST') return void response.writeHead(405, { Allow: 'POST' }).end();
    const codec = codecOf(request.headers['content-type'], streaming);
    if (!codec) return void response.writeHead(415, { 'Accept-Post': contentTypes(streaming) }).end();
    let out: StreamOut | undefined;
    try {
      await options.resumed(row);
      const caller = callerOf(row, request, response, basicUser(request.headers.authorization));
      const admit = (bytes: number) => traceOf(response).share?.parse(bytes);
      const call = unary[path];
      requirePlain(request, call ? 'content-encoding' : 'connect-content-encoding');
      if (call) {
        const timeoutMs = options.bodyTimeoutMs;
        const body = await readBody(request, { maxBytes: MAX_MESSAGE, timeoutMs, admit });
        const message =
          body.length === 0 ? {} : await codec.decode(path, body, "The request's body", row.project);
        const answered = (await call(await enter(caller), message)) as object;
        return await codec.send(response, path, answered, row.project);
      }
      traceOf(response).endless = true;
      const envelopes = decodeEnvelopes(bodyOf(request), MAX_MESSAGE, admit);
      const messages = decoded(envelopes, codec, path, row.project);
      const stream = serverStreams[path];
      if (!stream) {
        const result = await clientStreams[path]!(await enter(caller), messages);
        response.writeHead(200, { 'Content-Type': codec.streaming });
        return void response.end(Buffer.concat([encodeEnvelope(codec.encode(path, result)), encodeEnd()]));
      }
      const first = await messages.next();
      // Nothing of what comes after the message is wanted.
      await messages.return(undefined);
      const opened = () => {
        begun();
        return (out ??= streamOut(response, {
          codec,
          path,
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
        response.writeHead(200, { 'Content-Type': codec.streaming }).end(encodeEnd(body));
      else sendJson(response, body, status, headers);
    }
  }

  return {
    paths: Object.keys({ ...unary, ...serverStreams, ...clientStreams }),
    kindOf(path) {
      if (Object.hasOwn(unary, path)) return 'call';
      return Object.hasOwn(serverStreams, path) || Object.hasOwn(clientStreams, path) ? 'stream' : undefined;
    },
    answer,
  };
}

async function* decoded(
  envelopes: AsyncIterable<Buffer>,
  codec: Codec,
  path: string,
  owner: string,
): AsyncGenerator<unknown> {
  for await (const bytes of envelopes) yield await codec.decode(path, bytes, 'A message', owner);
}

/** Throws `unsupported` if the client compressed its message. */
function requirePlain({ headers }: IncomingMessage, name: string): void {
  const given = headers[name] ?? 'identity';
  if (given === 'identity') return;
  throw new CayError('unsupported', `${String(given).slice(0, 40)} as "${name}" is not supported here`, {
    hint: 'send messages uncompressed',
  });
}

/** Whether the sandbox stopped after it was looked up. */
export function isStopped(error: unknown): boolean {
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
