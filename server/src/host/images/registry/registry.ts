/**
 * Reads from registries of images by the distribution API, version 2.
 *
 * Who calls it: `pull-image.ts`, once for each document and each layer. Requests that fail for a passing
 * reason are tried again after a pause. A mirror is asked first, and its registry if the mirror does not have
 * it; whatever it gives is checked against its digest, so that a mirror is trusted for tags alone. Everything
 * read is hostile and bounded.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { IncomingMessage } from 'node:http';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { digestOf, INDEX_TYPES, MANIFEST_TYPES, MOST_MANIFEST_BYTES } from '../manifest.ts';
import { canonicalName, type ImageReference } from '../reference.ts';
import { parseChallenge } from './challenge.ts';
import { noCredentials, type Credentials } from './credentials.ts';
import { readBounded } from './read-bounded.ts';
import { denied, openTokens } from './tokens.ts';
import { openTransport } from './transport.ts';

export interface RegistrySettings {
  /** `host` or `host:port`. */
  insecure?: readonly string[];
  /** Those that may be on this machine or in a private network. */
  private?: readonly string[];
  /** The mirrors of each registry, asked in this order before it. They may be private. */
  mirrors?: Readonly<Record<string, readonly string[]>>;
  credentials?: Credentials;
  /** Before the first repetition; doubled each time. Default 500. */
  retryMs?: number;
}

export interface Content {
  /** The rest of the blob from `offset` on. */
  body: IncomingMessage;
  offset: number;
}

export interface Registry {
  /**
   * A manifest or index by the reference's digest or tag. Rejects `not_found`, `permission_denied`,
   * `unavailable`, and `invalid_argument` for one that is not what its digest says.
   */
  manifest(
    reference: ImageReference,
    options?: { signal?: AbortSignal },
  ): Promise<{ bytes: Buffer; digest: string }>;
  /** A small blob, whole and checked. */
  document(
    reference: ImageReference,
    digest: string,
    options: { mostBytes: number; signal?: AbortSignal },
  ): Promise<Buffer>;
  /** A blob from an offset on, or from its beginning where the registry cannot do that. Not checked. */
  blob(
    reference: ImageReference,
    digest: string,
    options: { offset: number; signal?: AbortSignal },
  ): Promise<Content>;
  close(): void;
}

const TRIES = 4;
const MOST_WAIT_MS = 20_000;
const ACCEPT = [...INDEX_TYPES, ...MANIFEST_TYPES].join(', ');
/** Where the registry that is called `docker.io` really is. */
const HOSTS: Record<string, string> = { 'docker.io': 'registry-1.docker.io' };

export function openRegistry(settings: RegistrySettings = {}): Registry {
  const { mirrors = {}, credentials = noCredentials, retryMs = 500 } = settings;
  const insecureHosts = new Set(settings.insecure);
  const privateHosts = new Set([...(settings.private ?? []), ...Object.values(mirrors).flat()]);
  const transport = openTransport({ insecureHosts, privateHosts });
  const tokens = openTokens(transport, credentials);

  interface Request {
    reference: ImageReference;
    path: string;
    headers: Record<string, string>;
    signal: AbortSignal | undefined;
  }

  /** One request to one host, with a token if it wants one. */
  async function attempt(host: string, request: Request): Promise<IncomingMessage> {
    const { repository } = request.reference;
    const address = HOSTS[host] ?? host;
    const url = new URL(
      `${insecureHosts.has(host) ? 'http' : 'https'}://${address}/v2/${repository}/${request.path}`,
    );
    const call = (authorization: string | undefined) =>
      transport.get(url, {
        headers: { ...request.headers, ...(authorization !== undefined && { authorization }) },
        ...(request.signal && { signal: request.signal }),
      });
    const answer = await call(tokens.known(host, repository));
    if (answer.statusCode !== 401) return answer;
    answer.destroy();
    const challenge = parseChallenge(answer.headers['www-authenticate']);
    const authorization = challenge && (await tokens.answer(host, repository, challenge, request.signal));
    if (authorization === undefined) throw denied(host, repository, false, 401);
    return call(authorization);
  }

  async function patiently(host: string, request: Request): Promise<IncomingMessage> {
    for (let tried = 1, waitMs = retryMs; ; tried++, waitMs *= 2) {
      try {
        const answer = await attempt(host, request);
        const { statusCode = 0 } = answer;
        if (statusCode >= 200 && statusCode < 300) return answer;
        answer.destroy();
        throw failure(host, request.reference, statusCode, answer.headers['retry-after']);
      } catch (error) {
        if (request.signal?.aborted) throw request.signal.reason;
        if (!isCayError(error, 'unavailable') || tried === TRIES) throw error;
        const asked = Number(error.details['retryAfterMs'] ?? 0);
        const jittered = waitMs * (0.75 + Math.random() / 2);
        await sleep(Math.min(Math.max(asked, jittered), MOST_WAIT_MS), undefined, { signal: request.signal });
      }
    }
  }

  /** From the first of mirrors and registry that has it. */
  async function get(request: Request): Promise<IncomingMessage> {
    const { registry } = request.reference;
    const hosts = [...(mirrors[registry] ?? []), registry];
    for (const [index, host] of hosts.entries()) {
      try {
        return await patiently(host, request);
      } catch (error) {
        if (index === hosts.length - 1 || request.signal?.aborted) throw error;
      }
    }
    throw new Error('unreachable');
  }

  return {
    async manifest(reference, { signal } = {}) {
      const { digest, tag = 'latest' } = reference;
      const what = `the manifest of "${canonicalName(reference)}"`;
      const answer = await get({
        reference,
        path: `manifests/${digest ?? tag}`,
        headers: { accept: ACCEPT },
        signal,
      });
      const bytes = await readBounded(answer, MOST_MANIFEST_BYTES, what);
      const real = digestOf(bytes);
      if (digest !== undefined && real !== digest) throw wrongDigest(what, real);
      return { bytes, digest: real };
    },

    async document(reference, digest, { mostBytes, signal }) {
      const what = `the configuration of "${canonicalName(reference)}"`;
      const answer = await get({ reference, path: `blobs/${digest}`, headers: {}, signal });
      const bytes = await readBounded(answer, mostBytes, what);
      if (digestOf(bytes) !== digest) throw wrongDigest(what, digestOf(bytes));
      return bytes;
    },

    async blob(reference, digest, { offset, signal }) {
      const headers: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {};
      const body = await get({ reference, path: `blobs/${digest}`, headers, signal });
      const range = /^bytes ([0-9]{1,15})-/.exec(body.headers['content-range'] ?? '');
      return { body, offset: body.statusCode === 206 && range ? Number(range[1]) : 0 };
    },

    close: () => transport.close(),
  };
}

export function wrongDigest(what: string, digest: string): CayError {
  return new CayError('invalid_argument', `Cannot use ${what}: it is ${digest}, not what it should be`, {
    details: { digest },
  });
}

function failure(
  host: string,
  reference: ImageReference,
  status: number,
  retryAfter: string | undefined,
): CayError {
  const name = canonicalName(reference);
  const details = { registry: host, status };
  if (status === 404)
    return new CayError('not_found', `The registry "${host}" has no image "${name}"`, {
      details: { ...details, what: 'template' },
    });
  if (status === 401 || status === 403) return denied(host, reference.repository, true, status);
  if (status === 416)
    return new CayError('invalid_argument', `The registry "${host}" has less of "${name}" than before`, {
      details,
    });
  const passing = status === 429 || status === 408 || status >= 500;
  const seconds = Number(retryAfter);
  return new CayError(
    passing ? 'unavailable' : 'invalid_argument',
    `The registry "${host}" answered ${status} for "${name}"`,
    { details: { ...details, ...(seconds > 0 && { retryAfterMs: Math.min(seconds * 1000, MOST_WAIT_MS) }) } },
  );
}
