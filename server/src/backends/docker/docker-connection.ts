/**
 * Requests to the Docker Engine API, in the oldest version that both sides know, and what their failures
 * mean.
 */
import { Agent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { CayError } from '@cay/sdk/protocol';
import { BodyTooLong, readWhole } from '../../lib/http-body.ts';
import { answerTo, queryText, type Answered } from '../../lib/http-client.ts';
import type { DockerCall } from './docker-client.ts';
import { fromDocker, fromDockerAnswer } from './from-docker.ts';

/** Of Docker 20.10, the first with one-shot stats. Engines that have dropped it name a newer one. */
const OLDEST_VERSION = '1.41';
export const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** `host` is `unix:///path`, `tcp://name:port` or `http://name:port`. */
export function dockerConnection(host: string) {
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

  /** The path below the version that is spoken. */
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

  return { send, versioned, readAll, broken, wholly, fail, close: () => agent.destroy() };
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
