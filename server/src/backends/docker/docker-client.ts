/**
 * As much of the Docker Engine API as the backend needs: requests with bounded JSON answers, a
 * stream of JSON lines, and hijacked connections. Speaks the oldest version that both sides know.
 */
import { Agent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import type { Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';
import { BodyTooLong, jsonLines, readWhole } from '../../lib/http-body.ts';
import {
  answerTo,
  isSuccess,
  queryText,
  signalWithin,
  type Answered,
  type Query,
} from '../../lib/http-client.ts';
import { fromDocker, fromDockerAnswer } from './from-docker.ts';

/** Of Docker 20.10, the first with one-shot stats. Engines that have dropped it name a newer one. */
const OLDEST_VERSION = '1.41';
const MAX_BODY_BYTES = 32 * 1024 * 1024;
const MAX_LINE_BYTES = 1024 * 1024;
const TIMEOUT_MS = 120_000;

export interface DockerCall {
  /** Completes "Cannot …" in errors. */
  action: string;
  query?: Query;
  /** Sent as JSON, or as a tar archive if it is bytes. */
  body?: object | Uint8Array;
  signal?: AbortSignal;
  /** How long the answer may take. Default two minutes. */
  timeoutMs?: number;
}

export interface DockerClient {
  /** Where the engine is, for messages. */
  readonly where: string;
  /** The decoded answer; `undefined` if it is empty. Statuses in `allow` resolve as `undefined` too. */
  json(method: string, path: string, call: DockerCall & { allow?: number[] }): Promise<unknown>;
  /** The answer's bytes, at most `maxBytes`, or `undefined` for a 404. */
  bytes(path: string, call: DockerCall & { maxBytes: number }): Promise<Buffer | undefined>;
  /** One header of the answer to a HEAD request, or `undefined` for a 404. */
  header(path: string, name: string, call: DockerCall): Promise<string | undefined>;
  /** The answer's lines, each a JSON value, until it ends or the signal aborts. */
  lines(method: string, path: string, call: DockerCall): AsyncIterable<unknown>;
  /** The answer's bytes as they come, or `undefined` for a 404. A reader that stops ends the request. */
  stream(path: string, call: DockerCall): Promise<AsyncIterable<Uint8Array> | undefined>;
  /** Sends a tar archive piece by piece. The answer's lines, each a JSON value. */
  upload(
    method: string,
    path: string,
    call: DockerCall & { archive: AsyncIterable<Uint8Array> },
  ): Promise<unknown[]>;
  /** Turns the connection into a byte stream in both directions. */
  hijack(path: string, call: DockerCall): Promise<Duplex>;
  close(): void;
}

/** `host` is `unix:///path`, `tcp://name:port` or `http://name:port`. */
export function dockerClient(host: string): DockerClient {
  const target = parseHost(host);
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  let version: Promise<string> | undefined;

  /** Sends one request. Resolves with the head of the answer, whatever its status. */
  function send(
    method: string,
    path: string,
    call: DockerCall,
    {
      archive,
      ...extra
    }: { agent?: false; headers?: Record<string, string>; archive?: AsyncIterable<Uint8Array> } = {},
  ): Promise<Answered> {
    const raw = call.body instanceof Uint8Array;
    const content =
      call.body === undefined
        ? undefined
        : raw
          ? (call.body as Uint8Array)
          : Buffer.from(JSON.stringify(call.body));
    const request = httpRequest({
      ...target,
      agent,
      method,
      path: path + queryText(call.query),
      signal: call.signal,
      ...extra,
      headers: {
        Host: 'docker',
        ...(content && {
          'Content-Type': raw ? 'application/x-tar' : 'application/json',
          'Content-Length': content.length,
        }),
        ...(archive && { 'Content-Type': 'application/x-tar' }),
        ...extra.headers,
      },
    });
    return answerTo(request, archive ?? content).catch((error: unknown) => {
      throw fromDocker(error, call.action, host);
    });
  }

  async function versioned(path: string): Promise<string> {
    version ??= negotiate();
    try {
      return `/v${await version}${path}`;
    } catch (error) {
      version = undefined;
      throw error;
    }
  }

  async function negotiate(): Promise<string> {
    const action = 'ask Docker for its version';
    const { answer } = await send('GET', '/version', { action, signal: AbortSignal.timeout(10_000) });
    const { ApiVersion, MinAPIVersion } = JSON.parse(
      (await readAll(answer, MAX_BODY_BYTES, action)).toString(),
    ) as Record<string, string>;
    if (!ApiVersion || newer(OLDEST_VERSION, ApiVersion)) {
      throw new CayError(
        'unsupported',
        `Cannot use Docker at "${host}": its API is ${ApiVersion || 'unknown'}, and ${OLDEST_VERSION} is needed`,
        {
          hint: 'Docker 20.10 or newer is needed',
        },
      );
    }
    return MinAPIVersion && newer(MinAPIVersion, OLDEST_VERSION) ? MinAPIVersion : OLDEST_VERSION;
  }

  async function readAll(answer: IncomingMessage, maxBytes: number, action: string): Promise<Buffer> {
    try {
      return await readWhole(answer, maxBytes);
    } catch (error) {
      throw broken(error, action);
    }
  }

  function broken(error: unknown, action: string): CayError {
    if (error instanceof BodyTooLong)
      return new CayError('internal', `Cannot ${action}: Docker misbehaves: ${error.message}`);
    return fromDocker(error, action, host);
  }

  /** A stream that the engine cuts short is an error, not an end. */
  async function* wholly(answer: IncomingMessage, action: string): AsyncIterable<Uint8Array> {
    try {
      yield* answer as AsyncIterable<Buffer>;
    } catch (error) {
      throw broken(error, action);
    } finally {
      answer.destroy();
    }
  }

  async function fail(answer: IncomingMessage, action: string): Promise<never> {
    throw fromDockerAnswer(
      answer.statusCode ?? 0,
      (await readAll(answer, 65_536, action)).toString(),
      action,
    );
  }

  const limited = (call: DockerCall): DockerCall => ({
    ...call,
    signal: signalWithin(call.timeoutMs ?? TIMEOUT_MS, call.signal),
  });

  return {
    where: host,

    async json(method, path, call) {
      const bounded = limited(call);
      const { answer } = await send(method, await versioned(path), bounded);
      if (!isSuccess(answer)) {
        if (!call.allow?.includes(answer.statusCode ?? 0)) return fail(answer, call.action);
        answer.resume();
        return undefined;
      }
      const body = (await readAll(answer, MAX_BODY_BYTES, call.action)).toString();
      return body === '' ? undefined : JSON.parse(body);
    },

    async bytes(path, call) {
      const { answer } = await send('GET', await versioned(path), limited(call));
      if (isSuccess(answer)) return readAll(answer, call.maxBytes, call.action);
      if (answer.statusCode !== 404) return fail(answer, call.action);
      answer.resume();
      return undefined;
    },

    async header(path, name, call) {
      const { answer } = await send('HEAD', await versioned(path), limited(call));
      if (!isSuccess(answer) && answer.statusCode !== 404) return fail(answer, call.action);
      answer.resume();
      return answer.statusCode === 404 ? undefined : String(answer.headers[name.toLowerCase()] ?? '');
    },

    async *lines(method, path, call) {
      const { answer } = await send(method, await versioned(path), call, { agent: false });
      if (!isSuccess(answer)) await fail(answer, call.action);
      try {
        yield* jsonLines(answer, MAX_LINE_BYTES);
      } catch (error) {
        throw broken(error, call.action);
      }
    },

    async stream(path, call) {
      const { answer } = await send('GET', await versioned(path), call, { agent: false });
      if (isSuccess(answer)) return wholly(answer, call.action);
      if (answer.statusCode !== 404) return fail(answer, call.action);
      answer.destroy();
      return undefined;
    },

    async upload(method, path, { archive, ...call }) {
      const { answer } = await send(method, await versioned(path), call, { agent: false, archive });
      if (!isSuccess(answer)) return fail(answer, call.action);
      const lines: unknown[] = [];
      try {
        for await (const line of jsonLines(answer, MAX_LINE_BYTES)) if (lines.push(line) > 10_000) break;
      } catch (error) {
        throw broken(error, call.action);
      }
      return lines;
    },

    async hijack(path, call) {
      const { answer, socket } = await send('POST', await versioned(path), call, {
        agent: false,
        headers: { Connection: 'Upgrade', Upgrade: 'tcp' },
      });
      if (socket) return socket;
      if (!isSuccess(answer)) await fail(answer, call.action);
      answer.destroy();
      throw new CayError(
        'unsupported',
        `Cannot ${call.action}: Docker at "${host}" does not hand its connection over`,
        {
          hint: 'A proxy before the engine may be in the way',
        },
      );
    },

    close() {
      agent.destroy();
    },
  };
}

function parseHost(host: string): RequestOptions {
  if (host.startsWith('unix://')) return { socketPath: host.slice('unix://'.length) };
  const url = URL.canParse(host) ? new URL(host) : undefined;
  if (url && (url.protocol === 'tcp:' || url.protocol === 'http:') && url.hostname)
    return { host: url.hostname, port: url.port || 2375 };
  throw new CayError(
    'invalid_argument',
    `Cannot use Docker at "${host}": must be "unix:///path" or "tcp://name:port"`,
  );
}

function newer(one: string, other: string): boolean {
  const [major = 0, minor = 0] = one.split('.').map(Number);
  const [otherMajor = 0, otherMinor = 0] = other.split('.').map(Number);
  return major > otherMajor || (major === otherMajor && minor > otherMinor);
}
