/** AWS Signature Version 4, in headers and in the query of an address. */
import { createHash, createHmac } from 'node:crypto';

type Header = readonly [name: string, value: string];

export interface SigningRequest {
  readonly method: string;
  readonly authority: string;
  readonly target: string;
  readonly headers: readonly Header[];
  /** In hexadecimal, or a word that stands for it. */
  readonly payloadHash: string;
  readonly region: string;
  readonly service: string;
  readonly accessKeyId: string;
  readonly secretKey: string;
  readonly sessionToken?: string | undefined;
  readonly now: Date;
}

/** The headers with the signature. Those of an earlier signature are left out. */
export function signV4(request: SigningRequest): Header[] {
  const { method, authority, target, payloadHash, service, accessKeyId, sessionToken } = request;
  const { time, scope } = scopeAt(request);
  const headers: Header[] = request.headers.filter(([name]) => !OWN_HEADERS.has(name.toLowerCase()));
  headers.push(['X-Amz-Date', time]);
  if (service === 's3') headers.push(['X-Amz-Content-Sha256', payloadHash]);
  if (sessionToken !== undefined) headers.push(['X-Amz-Security-Token', sessionToken]);
  const signed = new Map<string, string>([['host', authority]]);
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    if (lower !== 'content-type' && !lower.startsWith('x-amz-')) continue;
    const text = value.trim().replace(/ +/g, ' ');
    const known = signed.get(lower);
    signed.set(lower, known === undefined ? text : `${known},${text}`);
  }
  const names = [...signed.keys()].toSorted();
  const [path = '/', query = ''] = splitOnce(target, '?');
  const canonical = [
    method,
    canonicalPath(path, service),
    canonicalQuery(query),
    ...names.map((name) => `${name}:${signed.get(name)}`),
    '',
    names.join(';'),
    payloadHash,
  ].join('\n');
  const signature = signatureOf(canonical, request.secretKey, { time, scope });
  headers.push([
    'Authorization',
    `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope}, SignedHeaders=${names.join(';')}, Signature=${signature}`,
  ]);
  return headers;
}

/**
 * The target with a signature in its query: every client that has it may send the request until it expires.
 */
export function presignV4(
  request: Omit<SigningRequest, 'headers' | 'payloadHash'> & { readonly expiresSeconds: number },
): string {
  const { method, authority, target, service, accessKeyId, sessionToken, expiresSeconds } = request;
  const { time, scope } = scopeAt(request);
  const [path = '/', query = ''] = splitOnce(target, '?');
  const added = new URLSearchParams({
    'X-Amz-Algorithm': 'AWS4-HMAC-SHA256',
    'X-Amz-Credential': `${accessKeyId}/${scope}`,
    'X-Amz-Date': time,
    'X-Amz-Expires': String(expiresSeconds),
    ...(sessionToken !== undefined && { 'X-Amz-Security-Token': sessionToken }),
    'X-Amz-SignedHeaders': 'host',
  });
  const all = canonicalQuery(query === '' ? added.toString() : `${query}&${added.toString()}`);
  const canonical = [
    method,
    canonicalPath(path, service),
    all,
    `host:${authority}`,
    '',
    'host',
    'UNSIGNED-PAYLOAD',
  ].join('\n');
  return `${path}?${all}&X-Amz-Signature=${signatureOf(canonical, request.secretKey, { time, scope })}`;
}

function scopeAt({ now, region, service }: Pick<SigningRequest, 'now' | 'region' | 'service'>): {
  time: string;
  scope: string;
} {
  const time = now.toISOString().replace(/[-:]|\.\d+/g, '');
  return { time, scope: `${time.slice(0, 8)}/${region}/${service}/aws4_request` };
}

function signatureOf(
  canonical: string,
  secretKey: string,
  { time, scope }: { time: string; scope: string },
): string {
  const text = ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n');
  const key = scope
    .split('/')
    .reduce<Buffer>((last, part) => hmac(last, part), Buffer.from(`AWS4${secretKey}`));
  return hmac(key, text).toString('hex');
}

const OWN_HEADERS = new Set([
  'authorization',
  'x-amz-date',
  'x-amz-security-token',
  'x-amz-content-sha256',
  'date',
]);

/** The region and service that a client signed for, with whatever key. */
export function scopeOf(headers: readonly Header[]): { region: string; service: string } | undefined {
  const value = headers.find(([name]) => name.toLowerCase() === 'authorization')?.[1] ?? '';
  const [, region, service] =
    /Credential=[^/,]*\/\d{8}\/([a-z0-9-]{1,64})\/([a-z0-9-]{1,64})\/aws4_request/.exec(value) ?? [];
  return region !== undefined && service !== undefined ? { region, service } : undefined;
}

/** The same by the name of the host, such as `s3.eu-west-1.amazonaws.com`. */
export function scopeOfHost(authority: string): { region: string; service: string } | undefined {
  const labels = /^([a-z0-9.-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$/.exec(authority)?.[1]?.split('.');
  if (!labels) return undefined;
  const region = labels.findLast((label) => /^[a-z]{2}(-[a-z]+)+-\d$/.test(label));
  const rest = labels.filter((label) => label !== region && label !== 'dualstack');
  const service = rest.at(-1);
  return service === undefined ? undefined : { region: region ?? 'us-east-1', service };
}

function canonicalPath(path: string, service: string): string {
  const encode = (text: string) =>
    encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  const decoded = (text: string) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  // Every service but S3 encodes what is already encoded once more.
  return path
    .split('/')
    .map((part) => (service === 's3' ? encode(decoded(part)) : encode(encode(decoded(part)))))
    .join('/');
}

function canonicalQuery(query: string): string {
  if (query === '') return '';
  const encode = (text: string) => {
    const plain = text.replace(/\+/g, '%20');
    let decoded = plain;
    try {
      decoded = decodeURIComponent(plain);
    } catch {
      // Left as it is: the target will not take it either.
    }
    return encodeURIComponent(decoded).replace(
      /[!'()*]/g,
      (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
    );
  };
  return query
    .split('&')
    .map((pair) => splitOnce(pair, '=').map(encode))
    .map(([name = '', value = '']) => [name, value] as const)
    .toSorted(([one, first], [other, second]) => compare(one, other) || compare(first, second))
    .map(([name, value]) => `${name}=${value}`)
    .join('&');
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function splitOnce(text: string, mark: string): string[] {
  const at = text.indexOf(mark);
  return at === -1 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

export function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
