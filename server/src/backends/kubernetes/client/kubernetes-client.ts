/**
 * As much of the Kubernetes API as the backends need: requests with bounded JSON answers, watches as lines,
 * and exec's WebSocket. Who we are and where the cluster is, proxies, tokens that are renewed and login
 * programs included, is read as `kubectl` does it.
 */
import { request as httpsRequest } from 'node:https';
import { request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http';
import { CayError } from '@cay/sdk/protocol';
import WebSocket from 'ws';
import { BodyTooLong, jsonLines, readWhole } from '../../../lib/http-body.ts';
import { answerTo, isSuccess, queryText, signalWithin, type Query } from '../../../lib/http-client.ts';
import { clusterIdentity, loadConfig } from './cluster-identity.ts';
import { fromKubernetes, fromKubernetesAnswer } from './from-kubernetes.ts';
import { inBackground } from '../../../lib/in-background.ts';

const MAX_BODY_BYTES = 64 * 1024 * 1024;
const MAX_LINE_BYTES = 4 * 1024 * 1024;
/** Far more than a kubelet sends at once. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;
const TIMEOUT_MS = 60_000;
/** Attempts after an answer 429, which says when to try again, or after a patch that conflicted. */
const MAX_RETRIES = 4;
const MAX_RETRY_AFTER_MS = 5_000;
/**
 * A merge patch names no version, so it can conflict with many other changes and is still right when it is
 * repeated.
 */
export const MERGE_PATCH = 'application/merge-patch+json';
const OVERTAKEN_MS = 20;

export interface KubernetesCall {
  /** Completes "Cannot …" in errors. */
  action: string;
  query?: Query;
  body?: object;
  /** Of the body. Default `application/json`. */
  type?: string;
  /** The body names the version that it changes: a conflict is not tried again. */
  exact?: boolean;
  signal?: AbortSignal;
}

export interface KubernetesClient {
  /** Where the API server is, for messages. */
  readonly where: string;
  /** The namespace that the configuration names. */
  readonly namespace: string | undefined;
  /** How many requests were made. */
  readonly requests: number;
  /** The cluster's time, by which it ends leases. */
  now(): number;
  /** The decoded answer. Statuses in `allow` resolve as `undefined`. */
  json(method: string, path: string, call: KubernetesCall & { allow?: number[] }): Promise<unknown>;
  /** The answer's lines, each a JSON value, until it ends or the signal aborts. */
  lines(path: string, call: KubernetesCall): AsyncIterable<unknown>;
  /** Resolves when it is open; it is paused until the caller resumes it. */
  socket(path: string, call: KubernetesCall): Promise<WebSocket>;
  close(): void;
}

export interface ClientOptions {
  /** A kubeconfig's path. Default: as `kubectl` finds it, or the pod's own account inside a cluster. */
  kubeconfig?: string;
  context?: string;
}

export async function kubernetesClient(options: ClientOptions): Promise<KubernetesClient> {
  const config = await loadConfig(options);
  const cluster = config.getCurrentCluster();
  if (!cluster) {
    throw new CayError(
      'failed_precondition',
      'Cannot use Kubernetes: the kubeconfig names no current cluster',
      {
        hint: 'run "kubectl config use-context NAME", or name a context in the settings',
      },
    );
  }
  const { identified, isShared, close } = clusterIdentity(config, cluster);
  const base = new URL(cluster.server);
  const where = cluster.server;
  let requests = 0;
  /** How far the cluster's clock is ahead of ours. */
  let aheadMs = 0;

  const target = (path: string, query?: Query) =>
    new URL(base.pathname.replace(/\/$/, '') + path + queryText(query), base);

  async function send(method: string, path: string, call: KubernetesCall): Promise<IncomingMessage> {
    const known = await identified();
    requests++;
    const content = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
    const make = base.protocol === 'https:' ? httpsRequest : httpRequest;
    const request = make(target(path, call.query), {
      ...known,
      method,
      signal: call.signal,
      headers: {
        Accept: 'application/json',
        'User-Agent': 'cay',
        ...(known.headers as OutgoingHttpHeaders | undefined), // never an array: the library fills in names
        ...(content && { 'Content-Type': call.type ?? 'application/json', 'Content-Length': content.length }),
      },
    });
    const { answer, socket } = await answerTo(request, content).catch((error: unknown) => {
      throw fromKubernetes(error, call.action, where);
    });
    if (socket) {
      socket.destroy();
      throw fromKubernetes(new Error('it changes the protocol unasked'), call.action, where);
    }
    const said = Date.parse(answer.headers.date ?? '');
    // The header has whole seconds, so a smaller difference means nothing.
    if (said > 0) aheadMs = Math.abs(said - Date.now()) < 2000 ? 0 : said - Date.now();
    return answer;
  }

  async function body(answer: IncomingMessage, action: string): Promise<string> {
    try {
      return (await readWhole(answer, MAX_BODY_BYTES)).toString();
    } catch (error) {
      if (error instanceof BodyTooLong) throw new CayError('internal', `Cannot ${action}: ${error.message}`);
      throw fromKubernetes(error, action, where);
    }
  }

  /** Rejects `Throttled` if it is to be tried later. */
  async function dial(path: string, call: KubernetesCall): Promise<WebSocket> {
    const known = await identified();
    requests++;
    const url = target(path, call.query);
    url.protocol = base.protocol === 'https:' ? 'wss:' : 'ws:';
    const { promise, resolve, reject } = Promise.withResolvers<WebSocket>();
    // A connection that becomes a stream cannot be used again, so it is not one of the agent's.
    const socket = new WebSocket(url, ['v5.channel.k8s.io', 'v4.channel.k8s.io'], {
      ...known,
      ...(isShared(known.agent) && { agent: undefined }),
      perMessageDeflate: false,
      maxPayload: MAX_MESSAGE_BYTES,
      handshakeTimeout: TIMEOUT_MS,
    } as WebSocket.ClientOptions);
    const abort = () => socket.terminate();
    call.signal?.addEventListener('abort', abort, { once: true });
    socket.once('open', () => {
      socket.pause();
      resolve(socket);
    });
    socket.once('unexpected-response', (_request, answer) => {
      const read = body(answer, call.action).then((text) => {
        const refused = fromKubernetesAnswer(answer.statusCode ?? 0, text, call.action);
        reject(answer.statusCode === 429 ? new Throttled(refused, retryAfterMs(answer)) : refused);
      });
      inBackground(read, reject);
    });
    // Aborting closes the socket, whose error is then about that.
    const failed = (error: Error) =>
      reject(fromKubernetes(call.signal?.aborted ? call.signal.reason : error, call.action, where));
    socket.on('error', failed);
    socket.once('close', () => failed(new Error('it was closed')));
    if (call.signal?.aborted) abort();
    try {
      return await promise;
    } finally {
      call.signal?.removeEventListener('abort', abort);
    }
  }

  return {
    where,
    namespace: config.getContextObject(config.getCurrentContext())?.namespace,
    get requests() {
      return requests;
    },
    now: () => Date.now() + aheadMs,

    async json(method, path, call) {
      const signal = signalWithin(TIMEOUT_MS, call.signal);
      for (let attempt = 0; ; attempt++) {
        const answer = await send(method, path, { ...call, signal });
        const text = await body(answer, call.action);
        if (isSuccess(answer)) return text === '' ? undefined : JSON.parse(text);
        const status = answer.statusCode ?? 0;
        const retried = call.type === MERGE_PATCH && !call.exact;
        const overtaken = status === 409 && retried && !/precondition/i.test(text);
        if ((status !== 429 && !overtaken) || attempt >= MAX_RETRIES) {
          if (call.allow?.includes(status)) return undefined;
          throw fromKubernetesAnswer(status, text, call.action);
        }
        await pause(overtaken ? OVERTAKEN_MS * 2 ** attempt : retryAfterMs(answer), signal);
      }
    },

    async *lines(path, call) {
      const answer = await send('GET', path, call);
      if (!isSuccess(answer))
        throw fromKubernetesAnswer(answer.statusCode ?? 0, await body(answer, call.action), call.action);
      try {
        yield* jsonLines(answer, MAX_LINE_BYTES);
      } catch (error) {
        throw fromKubernetes(error, call.action, where);
      }
    },

    async socket(path, call) {
      for (let attempt = 0; ; attempt++) {
        try {
          return await dial(path, call);
        } catch (error) {
          if (!(error instanceof Throttled)) throw error;
          if (attempt >= MAX_RETRIES) throw error.cause;
          await pause(error.afterMs, call.signal).catch((cause: unknown) => {
            throw fromKubernetes(cause, call.action, where);
          });
        }
      }
    },

    close() {
      close();
    },
  };
}

/** The API server answers that it has too many requests. */
class Throttled extends Error {
  readonly afterMs: number;

  constructor(cause: CayError, afterMs: number) {
    super(cause.message, { cause });
    this.afterMs = afterMs;
  }
}

function retryAfterMs({ headers }: IncomingMessage): number {
  return Math.min((Number(headers['retry-after']) || 1) * 1000, MAX_RETRY_AFTER_MS);
}

async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  const { setTimeout: sleep } = await import('node:timers/promises');
  await sleep(ms, undefined, { signal });
}
