import type { Put } from '@cay/sdk/protocol';
import { Denial } from '../carrier/denial.ts';
import type { Header } from '../http/exchange.ts';
import type { Brokered, BrokeredSecret, BrokerRequest } from './broker.ts';
import { ByteMask, ByteSearch } from './byte-search.ts';
import { scopeOf, scopeOfHost, sha256, signV4 } from '../../lib/sigv4.ts';

type AwsPut = Extract<Put, { as: 'aws' }>;

/**
 * Puts the secrets of the rules on one request, and finds placeholders that are not meant for it. Throws a
 * `Denial`. What it throws and what it records never has a secret in it.
 */
export function putSecrets(request: BrokerRequest): Brokered {
  const { puts, secrets, secure } = request;
  const used = new Map<string, BrokeredSecret>();
  const use = (name: string): string => {
    const secret = secrets.find((one) => one.name === name);
    if (!secret)
      throw new Denial('secret', `The secret "${name}" that a rule puts on this request is not set`);
    if (!secure)
      throw new Denial('secret', `The secret "${name}" is put on HTTPS alone, and this is plain HTTP`);
    // eslint-disable-next-line no-control-regex
    if (/[\x00-\x1f\x7f]/.test(secret.value))
      throw new Denial('secret', `The secret "${name}" has line breaks or control characters in it`);
    used.set(name, secret);
    return secret.value;
  };
  let { target } = request;
  let headers: Header[] = [...request.headers];
  for (const put of puts) {
    if (put.as === 'placeholder') {
      const secret = secrets.find((one) => one.name === put.secret);
      if (!secret || !carries(secret.placeholder, target, headers)) continue;
      const value = use(put.secret);
      target = target.replaceAll(secret.placeholder, encodeURIComponent(value));
      headers = headers.map((header) => replaceIn(header, secret.placeholder, value));
    } else if (put.as === 'query') target = withParameter(target, put.parameter, use(put.secret));
    else if (put.as === 'header') {
      const value = put.secret === undefined ? undefined : use(put.secret);
      const text = (put.value ?? '{secret}').replaceAll('{secret}', () => value ?? '{secret}');
      headers = withHeader(headers, put.header, text);
    } else if (put.as === 'basic' || put.as === 'git') {
      const user = put.username ?? 'x-access-token';
      headers = withHeader(headers, 'Authorization', basic(`${user}:${use(put.secret)}`));
    }
  }
  const aws = puts.find((put) => put.as === 'aws');
  const scope = aws && awsScope(aws, request);
  // What stood for the secret in an earlier signature is replaced as a whole.
  const scanned = aws
    ? headers.filter(([name]) => !/^(authorization|x-amz-security-token)$/i.test(name))
    : headers;
  const stray = secrets.find(({ placeholder }) => carries(placeholder, target, scanned));
  if (stray) throw strayPlaceholder(stray);
  const hash = scope && payloadHash(scope.service, headers);
  const sign = (body: string): Header[] =>
    signV4({
      ...request,
      ...scope!,
      target,
      headers,
      payloadHash: body,
      accessKeyId: aws!.accessKeyId,
      secretKey: use(aws!.secret),
      sessionToken: aws!.sessionToken === undefined ? undefined : use(aws!.sessionToken),
      now: new Date(),
    });
  const collect = aws !== undefined && hash === undefined;
  const final = aws && hash !== undefined ? sign(hash) : headers;
  const values = [...used.values()].flatMap(({ value }) => [...new Set([value, encodeURIComponent(value)])]);
  // A compressed answer could have a secret in it that nobody sees.
  const plain = (list: readonly Header[]) =>
    values.length === 0 ? list : withHeader([...list], 'Accept-Encoding', 'identity');
  const search = new ByteSearch(secrets.map(({ placeholder }) => placeholder));
  const mask = new ByteMask(values);
  return {
    target,
    headers: plain(final),
    collect,
    finishHead: (body) => plain(sign(sha256(body))),
    scan(chunk) {
      const found = search.find(chunk);
      if (found !== undefined) throw strayPlaceholder(secrets[found]!);
    },
    maskHeader: (value) =>
      [...used.values()].reduce(
        (text, secret) =>
          text
            .replaceAll(secret.value, secret.placeholder)
            .replaceAll(encodeURIComponent(secret.value), secret.placeholder),
        value,
      ),
    maskBody: (chunk, last) => mask.pass(chunk, last),
  };
}

function strayPlaceholder({ name }: BrokeredSecret): Denial {
  return new Denial(
    'placeholder',
    `The request carries the placeholder of the secret "${name}", and no rule puts that secret there`,
  );
}

/** Whether a placeholder is somewhere in a request: as it is, percent-encoded, or in basic credentials. */
function carries(placeholder: string, target: string, headers: readonly Header[]): boolean {
  const inText = (text: string) => {
    if (text.includes(placeholder)) return true;
    if (!text.includes('%')) return false;
    try {
      return decodeURIComponent(text.replaceAll('+', '%20')).includes(placeholder);
    } catch {
      return false;
    }
  };
  return (
    inText(target) ||
    headers.some(
      ([name, value]) =>
        inText(value) || name.includes(placeholder) || (decodeBasic(value) ?? '').includes(placeholder),
    )
  );
}

function replaceIn([name, value]: Header, placeholder: string, secret: string): Header {
  const credentials = decodeBasic(value);
  if (credentials?.includes(placeholder))
    return [name, basic(credentials.replaceAll(placeholder, () => secret))];
  return [name, value.replaceAll(placeholder, () => secret)];
}

function decodeBasic(value: string): string | undefined {
  const encoded = /^basic +([A-Za-z0-9+/=_-]+)$/i.exec(value.trim())?.[1];
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64').toString();
}

function basic(credentials: string): string {
  return `Basic ${Buffer.from(credentials).toString('base64')}`;
}

function withHeader(headers: readonly Header[], name: string, value: string): Header[] {
  return [...headers.filter(([other]) => other.toLowerCase() !== name.toLowerCase()), [name, value]];
}

function withParameter(target: string, parameter: string, value: string): string {
  const at = target.indexOf('?');
  const path = at === -1 ? target : target.slice(0, at);
  const same = (pair: string) => {
    const name = pair.split('=', 1)[0]!.replaceAll('+', ' ');
    try {
      return decodeURIComponent(name) === parameter;
    } catch {
      return false;
    }
  };
  const kept =
    at === -1
      ? []
      : target
          .slice(at + 1)
          .split('&')
          .filter((pair) => pair !== '' && !same(pair));
  return `${path}?${[...kept, `${encodeURIComponent(parameter)}=${encodeURIComponent(value)}`].join('&')}`;
}

function awsScope(put: AwsPut, request: BrokerRequest): { region: string; service: string } {
  const known = scopeOf(request.headers) ?? scopeOfHost(request.authority);
  const region = put.region ?? known?.region;
  const service = put.service ?? known?.service;
  if (region === undefined || service === undefined)
    throw new Denial(
      'secret',
      'The request cannot be signed: neither it nor the rule says region and service',
    );
  return { region, service };
}

/** The hash that the client gave. Nothing if the body has to be hashed here. */
function payloadHash(service: string, headers: readonly Header[]): string | undefined {
  const given = headers.find(([name]) => name.toLowerCase() === 'x-amz-content-sha256')?.[1];
  if (given === undefined) return service === 's3' ? 'UNSIGNED-PAYLOAD' : undefined;
  if (given.startsWith('STREAMING-AWS4-'))
    throw new Denial(
      'secret',
      'Each piece of this body is signed, which cannot be done anew: send it in one piece',
    );
  return given;
}
