import { isIP } from 'node:net';
import { CayError } from '@cay/sdk/protocol';

/** Where a bucket is. */
export interface BucketAddress {
  /** `https://s3.eu-west-1.amazonaws.com`, without a path. */
  readonly endpoint: URL;
  readonly region: string;
  readonly bucket: string;
  /** Empty, or ends with a slash. */
  readonly prefix: string;
  /** Whether the bucket is in the path, or a part of the host's name. */
  readonly style: 'path' | 'host';
}

export interface AddressParts {
  bucket: string;
  prefix?: string | undefined;
  region?: string | undefined;
  endpoint?: string | undefined;
  style?: 'path' | 'host' | undefined;
}

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const REGION = /^[a-z0-9][a-z0-9-]{0,62}$/;
const LONGEST_PREFIX = 512;
const USUAL_REGION = 'us-east-1';

/** Rejects `invalid_argument`, with the part that is wrong. */
export function bucketAddress({ bucket, prefix = '', region, endpoint, style }: AddressParts): BucketAddress {
  if (!BUCKET.test(bucket) || bucket.includes('..'))
    throw wrong(`"${bucket.slice(0, 100)}" is no name of a bucket`, 'use 3 to 63 of a-z 0-9 . -');
  if (region !== undefined && !REGION.test(region))
    throw wrong(`"${region.slice(0, 100)}" is no name of a region`, 'such as eu-west-1');
  const at = region ?? USUAL_REGION;
  const url = endpoint === undefined ? new URL(`https://s3.${at}.amazonaws.com`) : endpointOf(endpoint);
  if (style === 'host' && isIP(url.hostname.replace(/^\[|\]$/g, '')) !== 0)
    throw wrong(
      `The endpoint "${url.host}" is an address, which has no names below it`,
      'the style has to be path',
    );
  return {
    endpoint: url,
    region: at,
    bucket,
    prefix: prefixOf(prefix),
    // A certificate does not cover a bucket with dots in its name.
    style: style ?? (endpoint === undefined && !bucket.includes('.') ? 'host' : 'path'),
  };
}

/** Reads `s3://bucket/prefix?region=…&endpoint=…&style=path`. */
export function parseBucketUrl(text: string): BucketAddress {
  const found = /^s3:\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/.exec(text);
  if (!found)
    throw wrong(
      `"${withoutUser(text)}" is no address of a bucket`,
      's3://bucket/prefix?region=…&endpoint=https://…',
    );
  const [, bucket = '', prefix = '', query = ''] = found;
  if (bucket.includes('@'))
    throw wrong('The address of a bucket has credentials in it', 'give them in the environment or a file');
  const options = new URLSearchParams(query);
  const unknown = [...options.keys()].find((name) => !['region', 'endpoint', 'style'].includes(name));
  if (unknown !== undefined)
    throw wrong(
      `The address of a bucket has no option "${unknown.slice(0, 40)}"`,
      'there are region, endpoint and style',
    );
  const style = options.get('style') ?? undefined;
  if (style !== undefined && style !== 'path' && style !== 'host')
    throw wrong(`The style "${style.slice(0, 40)}" is unknown`, 'it is path or host');
  return bucketAddress({
    bucket,
    prefix: decoded(prefix),
    region: options.get('region') ?? undefined,
    endpoint: options.get('endpoint') ?? undefined,
    style,
  });
}

/** As it is shown: there is no secret in it. */
export function shownAddress({ endpoint, bucket, prefix }: BucketAddress): string {
  return `s3://${bucket}/${prefix} at ${endpoint.host}`;
}

function endpointOf(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:'))
    throw wrong(`"${withoutUser(text)}" is no endpoint`, 'such as https://s3.example.com');
  if (url.username !== '' || url.password !== '')
    throw wrong('The endpoint has credentials in it', 'give them as the credentials of the bucket');
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw wrong(`The endpoint "${url.host}" has a path`, 'give the address of the server alone');
  return url;
}

function prefixOf(text: string): string {
  const prefix = text === '' || text.endsWith('/') ? text : `${text}/`;
  const parts = prefix.split('/').slice(0, -1);
  // oxlint-disable-next-line no-control-regex -- they are what is looked for
  if (prefix.length > LONGEST_PREFIX || /[\0-\x1f\x7f]/.test(prefix) || parts.some(isOdd))
    throw wrong(
      `"${text.slice(0, 100)}" is no prefix`,
      `use names with slashes between them, up to ${LONGEST_PREFIX} characters`,
    );
  return prefix;
}

const isOdd = (part: string) => part === '' || part === '.' || part === '..';

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function withoutUser(text: string): string {
  return text.replace(/\/\/[^/@]*@/, '//…@').slice(0, 100);
}

function wrong(message: string, hint: string): CayError {
  return new CayError('invalid_argument', message, { hint });
}
