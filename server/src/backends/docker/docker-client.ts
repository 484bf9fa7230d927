/**
 * As much of the Docker Engine API as the backend needs: requests with bounded JSON answers, a
 * stream of JSON lines, and hijacked connections.
 */
import type { Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';
import { jsonLines } from '../../lib/http-body.ts';
import { isSuccess, signalWithin, type Query } from '../../lib/http-client.ts';
import { dockerConnection, MAX_BODY_BYTES } from './docker-connection.ts';

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
  const connection = dockerConnection(host);
  const { send, versioned, readAll, broken, wholly, fail } = connection;

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
      connection.close();
    },
  };
}
