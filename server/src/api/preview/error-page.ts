/**
 * The answer to a visitor whose preview could not be shown: a small page for browsers, JSON for everything
 * else. A page has no word of the visitor's or the application's in it, loads nothing and runs no script.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isCayError, type CayError } from '@cay/sdk/protocol';
import { errorAnswer } from '../http/error-answer.ts';
import { sendJson } from '../http/send-json.ts';
import { isBadAnswer } from './application-answer.ts';
import type { PreviewAddress } from './preview-address.ts';
import { cookieOf } from './preview-token.ts';

interface Page {
  title: string;
  text: string;
  /** Whether the page may work in a moment. */
  retry: boolean;
}

const RETRY_COOKIE = 'cay_retry';
const RETRY_SECONDS = 2;
/**
 * A page that is left open reloads for a minute and not for ever: every reload counts as use of the sandbox,
 * and would keep it from being idle.
 */
const MAX_RETRIES = 30;
/** After this time without a reload, retries are counted from the beginning. */
const FORGET_SECONDS = 60;

const HEADERS = {
  'Content-Type': 'text/html; charset=utf-8',
  'Cache-Control': 'no-store',
  'Content-Security-Policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
};

/** Answers with the error. `status` takes the place of the status that the error has by itself. */
export function sendPreviewError(
  address: PreviewAddress,
  request: IncomingMessage,
  response: ServerResponse,
  error: CayError,
  { status }: { status?: number } = {},
): void {
  const answer = errorAnswer(error);
  const code = status ?? answer.status;
  const page = wantsPage(request) ? pageOf(address, error) : undefined;
  if (!page) return void sendJson(response, answer.body, code, answer.headers);
  const retries = page.retry ? retriesOf(request) : MAX_RETRIES;
  const again = retries < MAX_RETRIES;
  const html = render(page, again);
  response.writeHead(code, {
    ...HEADERS,
    ...answer.headers,
    ...(again && {
      'Set-Cookie': `${RETRY_COOKIE}=${retries + 1}; Path=${address.prefix}/; HttpOnly; SameSite=Lax; Max-Age=${FORGET_SECONDS}`,
    }),
    'Content-Length': Buffer.byteLength(html),
  });
  response.end(request.method === 'HEAD' ? undefined : html);
}

/** A page that does not reload. */
export function sendErrorPage(
  response: ServerResponse,
  status: number,
  { title, text }: Pick<Page, 'title' | 'text'>,
): void {
  const html = render({ title, text, retry: false }, false);
  response.writeHead(status, { ...HEADERS, 'Content-Length': Buffer.byteLength(html) });
  response.end(response.req.method === 'HEAD' ? undefined : html);
}

/** Browsers name HTML when they open a page. Other clients take anything or ask for JSON. */
export function wantsPage({ method, headers }: IncomingMessage): boolean {
  return (method === 'GET' || method === 'HEAD') && /\btext\/html\b/i.test(headers.accept ?? '');
}

/** Undefined for failures that have no words for visitors. */
function pageOf({ target }: PreviewAddress, error: CayError): Page | undefined {
  if (isCayError(error, 'not_found'))
    return {
      title: 'No preview here, or its token is missing',
      text: 'Open the address that ends with its token. "cay inspect" and the API show it as openUrl.',
      retry: false,
    };
  if (isBadAnswer(error))
    return {
      title: 'The application sent no valid answer',
      text: 'It closed the connection, or what it sent is not HTTP.',
      retry: true,
    };
  if (isCayError(error, 'unavailable'))
    return {
      title: `Nothing answers on port ${target?.port ?? ''} yet`,
      text: 'The application in the sandbox has not started to listen, or the sandbox does not run.',
      retry: true,
    };
  if (isCayError(error, 'deadline_exceeded'))
    return {
      title: 'The application did not answer in time',
      text: 'It accepted the connection and sent no answer.',
      retry: false,
    };
  if (isCayError(error, 'resource_exhausted'))
    return {
      title: 'Too many connections to this preview',
      text: 'Wait a moment and reload the page.',
      retry: true,
    };
  return undefined;
}

function retriesOf(request: IncomingMessage): number {
  const count = Number(cookieOf(request, RETRY_COOKIE) ?? 0);
  return Number.isInteger(count) && count >= 0 ? count : MAX_RETRIES;
}

function render({ title, text, retry }: Page, again: boolean): string {
  const next = again ? ' This page tries again by itself.' : retry ? ' Reload the page to try again.' : '';
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
${again ? `<meta http-equiv="refresh" content="${RETRY_SECONDS}">\n` : ''}<title>${title}</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 20vh auto; padding: 0 1rem }
h1 { font-size: 1.25rem }
</style>
</head>
<body>
<h1>${title}</h1>
<p>${text}${next}</p>
</body>
</html>
`;
}
