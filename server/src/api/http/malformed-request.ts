import type { IncomingMessage } from 'node:http';
import { CayError } from '@cay/sdk/protocol';

/** Headers that may not be repeated: two programs could read the same request in two ways. */
const ONCE = new Set(['host', 'content-length', 'transfer-encoding', 'e2b-sandbox-id', 'e2b-sandbox-port']);

/**
 * Checks a request before it is routed: its target is a path, it names one host, and its body has one length.
 * Returns the error, or undefined if it is well formed. Every surface calls this first.
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
 * Checks a target before it is parsed as a URL: with two slashes it would be a host. Applications behind
 * previews may have any path that HTTP allows.
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
