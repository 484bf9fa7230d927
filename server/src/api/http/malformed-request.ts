import type { IncomingMessage } from 'node:http';
import { CayError } from '@cay/sdk/protocol';

/** Headers of which a second one would let two readers of the same request see two different ones. */
const ONCE = new Set(['host', 'content-length', 'transfer-encoding', 'e2b-sandbox-id', 'e2b-sandbox-port']);

/**
 * What is wrong with a request before anybody looks at what it wants, if something is: its target is no path,
 * it names two hosts, or its body has no single length. Every plane asks this first, so that none has to
 * parse what no client sends.
 */
export function malformed(
  request: Pick<IncomingMessage, 'url' | 'headers' | 'rawHeaders'>,
  options: { upgrade: boolean },
): CayError | undefined {
  const { url = '', headers, rawHeaders } = request;
  if (!url.startsWith('/'))
    return refused(
      `The request target "${url.slice(0, 80)}" is not a path`,
      'send a path that begins with "/"',
    );
  const twice = givenTwice(rawHeaders);
  if (twice !== undefined) return refused(`The header "${twice}" is given more than once`, 'send it once');
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked')
    return refused(
      `The transfer coding "${coding.slice(0, 80)}" is not known`,
      'send a body with a length, or chunked',
    );
  const { 'content-length': length } = headers;
  if (options.upgrade && (coding !== undefined || (length !== undefined && Number(length) !== 0)))
    return refused('An upgrade has no body', 'send what follows when the upgrade is accepted');
  return undefined;
}

/**
 * The same for whoever takes the target apart: with two slashes it would be a host. An application behind a
 * preview may have any path that HTTP allows.
 */
export function malformedPath(url: string): CayError | undefined {
  if (!/^\/[\t\r\n]*[/\\]/.test(url)) return undefined;
  return refused(`The request target "${url.slice(0, 80)}" is not a path`, 'a path begins with one "/"');
}

function givenTwice(rawHeaders: readonly string[]): string | undefined {
  let seen: Set<string> | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!.toLowerCase();
    if (!ONCE.has(name)) continue;
    if (seen?.has(name)) return name;
    (seen ??= new Set()).add(name);
  }
  return undefined;
}

function refused(message: string, hint: string): CayError {
  return new CayError('invalid_argument', message, { hint });
}
