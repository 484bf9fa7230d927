import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { discard } from '../lib/http-body.ts';
import { ownText } from '../lib/own-text.ts';
import type { BucketAddress } from './bucket-address.ts';
import type { Bucket, BucketCall, BucketCredentials, BucketObject, ListOptions } from './bucket.ts';
import { openClient } from './client.ts';
import { copyObject } from './copy.ts';
import { download, objectOf, readSome } from './download.ts';
import { openTransport } from './transport.ts';
import { abortUpload, unquoted, upload } from './upload.ts';
import { childrenOf, escaped, textOf, type XmlElement } from './xml.ts';

export interface OpenBucketOptions {
  address: BucketAddress;
  credentials(): BucketCredentials | Promise<BucketCredentials>;
  /**
   * Whose word the endpoint is: an operator's may be anywhere, a tenant's on no private network unless
   * allowed.
   */
  reach: 'anywhere' | 'private' | 'public';
  /** Parts and ranges of one object at once. Default 4. */
  parallel?: number;
  /** Connections at once. Default 32. */
  connections?: number;
  /** How often one request is tried. Default 6. */
  attempts?: number;
  /** The first pause between attempts. Default 100. */
  pauseMs?: number;
  /** How long the server may be silent. Default 30,000. */
  stallMs?: number;
  /** Objects in one answer to a list. Default 1,000. */
  pageSize?: number;
  /** Reports what no caller waits for. */
  onError?(error: unknown): void;
}

const LONGEST_KEY = 1024;
const MOST_REMOVED = 1000;
const MAX_PAUSE_MS = 5_000;
/** A server that says that there is more, and gives nothing, is asked so often. */
const MOST_EMPTY_PAGES = 100;
const LISTED = new Set(['Contents', 'CommonPrefixes', 'Upload']);

export function openBucket(options: OpenBucketOptions): Bucket {
  const { address, reach, parallel = 4, attempts = 6, stallMs = 30_000, onError = () => {} } = options;
  const { prefix } = address;
  const transport = openTransport({
    allowPrivate: reach !== 'public',
    allowAny: reach === 'anywhere',
    connections: options.connections ?? 32,
    stallMs,
  });
  const client = openClient({
    address,
    credentials: options.credentials,
    transport,
    attempts,
    pauseMs: options.pauseMs ?? 100,
    maxPauseMs: MAX_PAUSE_MS,
  });

  function requireKey(key: string): void {
    if (key === '' || Buffer.byteLength(prefix + key) > LONGEST_KEY)
      throw new CayError(
        'invalid_argument',
        `"${key.slice(0, 100)}" is no key: with the prefix it has 1 to ${LONGEST_KEY} bytes`,
      );
  }

  /** A key of the server's without the prefix. What is not below it is none of ours. */
  function ownKey(text: string | undefined, isEncoded: boolean): string | undefined {
    const whole = isEncoded ? decodedKey(text ?? '') : (text ?? '');
    return belowPrefix(whole, prefix);
  }

  async function* pages(
    what: string,
    query: Record<string, string | number>,
    next: (document: XmlElement | undefined) => Record<string, string> | undefined,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<{ document: XmlElement | undefined; isEncoded: boolean }, void> {
    let place: Record<string, string> = {};
    let empty = 0;
    for (;;) {
      const { document } = await client.document({
        what,
        method: 'GET',
        query: { ...query, 'encoding-type': 'url', ...place },
        signal,
      });
      requireList(document, what);
      const has = document.children.some(({ name }) => LISTED.has(name));
      empty = has ? 0 : empty + 1;
      yield { document, isEncoded: textOf(document, 'EncodingType') === 'url' };
      if (textOf(document, 'IsTruncated') !== 'true') return;
      const following = next(document);
      const repeats = following === undefined || JSON.stringify(following) === JSON.stringify(place);
      if (repeats || empty > MOST_EMPTY_PAGES)
        throw new CayError('unavailable', `Cannot ${what} the bucket: the server repeats itself`);
      place = following;
    }
  }

  async function removeSome(keys: readonly string[], { signal }: BucketCall): Promise<void> {
    const objects = keys.map((key) => `<Object><Key>${escaped(prefix + key)}</Key></Object>`).join('');
    const body = Buffer.from(`<Delete><Quiet>true</Quiet>${objects}</Delete>`);
    const { document } = await client.document({
      what: `remove ${keys.length} objects from`,
      method: 'POST',
      query: { delete: '' },
      headers: {
        'content-type': 'application/xml',
        'content-md5': createHash('md5').update(body).digest('base64'),
      },
      body: [body],
      signal,
    });
    const [failed] = childrenOf(document, 'Error').filter((one) => textOf(one, 'Code') !== 'NoSuchKey');
    if (!failed) return;
    const said = `${textOf(failed, 'Code') ?? ''} for "${textOf(failed, 'Key') ?? ''}"`;
    throw new CayError('permission_denied', `Cannot remove objects from the bucket: ${said.slice(0, 300)}`);
  }

  return {
    async head(key, { signal } = {}) {
      requireKey(key);
      const what = `look at "${key}" in`;
      const answer = await client.send({ what, method: 'HEAD', key, expect: [404], signal });
      discard(answer);
      return answer.statusCode === 404 ? undefined : objectOf(key, answer);
    },
    async *get(key, given = {}) {
      requireKey(key);
      yield* download(client, key, { parallel, stallMs, breaks: attempts, ...given });
    },
    async read(object, { from, to, signal }) {
      requireKey(object.key);
      return readSome(client, object, { from, to }, { parallel, stallMs, breaks: attempts, signal });
    },
    async copy(object, to, call = {}) {
      requireKey(object.key);
      requireKey(to);
      return copyObject(client, object, to, call);
    },
    async put(key, content, given = {}) {
      requireKey(key);
      return upload(client, key, content, { ...given, parallel, onError });
    },
    async remove(keys, call = {}) {
      for (const key of keys) requireKey(key);
      if (keys.length === 1) {
        const what = `remove "${keys[0]}" from`;
        const request = { what, method: 'DELETE', key: keys[0], expect: [404], signal: call.signal } as const;
        discard(await client.send(request));
        return;
      }
      for (let at = 0; at < keys.length; at += MOST_REMOVED)
        await removeSome(keys.slice(at, at + MOST_REMOVED), call);
    },
    async *list(below = '', { delimiter, signal }: ListOptions = {}) {
      const query = {
        'list-type': 2,
        'max-keys': options.pageSize ?? 1000,
        prefix: prefix + below,
        ...(delimiter !== undefined && { delimiter }),
      };
      const following = (document: XmlElement | undefined) => {
        const token = textOf(document, 'NextContinuationToken');
        return token === undefined ? undefined : { 'continuation-token': token };
      };
      for await (const { document, isEncoded } of pages('list', query, following, signal)) {
        const found = [
          ...childrenOf(document, 'Contents').flatMap((one) =>
            objectIn(one, ownKey(textOf(one, 'Key'), isEncoded)),
          ),
          ...childrenOf(document, 'CommonPrefixes').flatMap((one) => {
            const key = ownKey(textOf(one, 'Prefix'), isEncoded);
            return key === undefined ? [] : [{ key, sizeBytes: 0, etag: '', modifiedAtMs: 0 }];
          }),
        ];
        if (delimiter !== undefined) found.sort(({ key: one }, { key: other }) => (one < other ? -1 : 1));
        yield* found;
      }
    },
    async *uploads(below = '', { signal } = {}) {
      const following = (document: XmlElement | undefined) => {
        const key = textOf(document, 'NextKeyMarker');
        const id = textOf(document, 'NextUploadIdMarker');
        return key === undefined || id === undefined
          ? undefined
          : { 'key-marker': key, 'upload-id-marker': id };
      };
      const query = { uploads: '', prefix: prefix + below };
      for await (const { document, isEncoded } of pages('list uploads of', query, following, signal)) {
        for (const one of childrenOf(document, 'Upload')) {
          const key = ownKey(textOf(one, 'Key'), isEncoded);
          const id = textOf(one, 'UploadId');
          if (key === undefined || id === undefined) continue;
          yield { key, id, startedAtMs: Date.parse(textOf(one, 'Initiated') ?? '') || 0 };
        }
      }
    },
    abortUpload: (pending, { signal } = {}) => abortUpload(client, pending, signal),
    async presign(method, key, expiresSeconds) {
      requireKey(key);
      return client.presign(method, key, expiresSeconds);
    },
    close: () => transport.close(),
  };
}

function objectIn(element: XmlElement, key: string | undefined): BucketObject[] {
  const sizeBytes = Number(textOf(element, 'Size') ?? Number.NaN);
  if (key === undefined || !Number.isSafeInteger(sizeBytes) || sizeBytes < 0) return [];
  return [
    {
      key,
      sizeBytes,
      etag: unquoted(textOf(element, 'ETag')),
      modifiedAtMs: Date.parse(textOf(element, 'LastModified') ?? '') || 0,
    },
  ];
}

const belowPrefix = (key: string, prefix: string) =>
  key.startsWith(prefix) && key.length > prefix.length ? ownText(key.slice(prefix.length)) : undefined;

/** What is no list is not an empty one: a sync would remove the files that it does not name. */
function requireList(document: XmlElement | undefined, what: string): asserts document is XmlElement {
  if (document?.name.startsWith('List') !== true)
    throw new CayError('unavailable', `Cannot ${what} the bucket: the server sends no list`);
}

/** Servers write a space as a plus there. */
function decodedKey(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}
