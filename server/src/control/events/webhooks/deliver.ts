/** One signed request to a webhook's URL, with a timeout, and only to addresses that the operator allows. */
import { createHmac } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import { CayError, type Delivery } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { addressKind } from '../../../lib/address-kind.ts';
import { guardedLookup } from '../../../lib/guarded-lookup.ts';

export interface DeliverOptions {
  secret: string;
  /** Allows this machine and private networks too. Link-local addresses are never allowed. */
  allowPrivate: boolean;
  timeoutMs?: number;
  signal?: AbortSignal;
  now?(): number;
}

const TIMEOUT_MS = 15_000;
/** The body of a response is not used; a short one is read so that the connection ends in order. */
const MOST_ANSWER = 64 * 1024;

export function signature(secret: string, body: string, atMs: number): string {
  const at = Math.floor(atMs / 1000);
  return `t=${at},v1=${createHmac('sha256', secret).update(`${at}.${body}`).digest('hex')}`;
}

/** Never rejects: an error is part of the result. */
export async function deliver(
  url: string,
  headers: Record<string, string>,
  body: string,
  options: DeliverOptions,
): Promise<Delivery> {
  const startedAt = performance.now();
  const { secret, timeoutMs = TIMEOUT_MS, signal, now = Date.now } = options;
  const durationMs = () => Math.round((performance.now() - startedAt) * 10) / 10;
  const within = AbortSignal.any([AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])]);
  try {
    const all = {
      ...headers,
      'content-type': 'application/json',
      'user-agent': 'cay',
      'cay-signature': signature(secret, body, now()),
    };
    const status = await post(new URL(url), all, body, {
      allowPrivate: options.allowPrivate,
      signal: within,
    });
    const ok = status >= 200 && status < 300;
    return { ok, status, ...(!ok && { error: `It answered ${status}` }), durationMs: durationMs() };
  } catch (error) {
    const late = within.aborted && !signal?.aborted;
    return {
      ok: false,
      status: null,
      error: late ? `It did not answer within ${timeoutMs} ms` : systemReason(error),
      durationMs: durationMs(),
    };
  }
}

function post(
  url: URL,
  headers: Record<string, string>,
  body: string,
  { allowPrivate, signal }: { allowPrivate: boolean; signal: AbortSignal },
): Promise<number> {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // A name is checked when it is resolved for the connection; an address is checked here.
  if (isIP(host) !== 0) requireAllowed(host, allowPrivate);
  return new Promise((done, reject) => {
    const start = url.protocol === 'https:' ? httpsRequest : httpRequest;
    const length = String(Buffer.byteLength(body));
    // A new connection each time: a kept one could lead to an address that the name no longer has.
    const outgoing = start(url, {
      method: 'POST',
      headers: { ...headers, 'content-length': length },
      agent: false,
      lookup: guardedLookup({
        isAllowed: (address) => isAllowed(address, allowPrivate),
        refusal: (name, address) => refusal(name, address, allowPrivate),
        system: allowPrivate,
      }),
      signal,
    });
    outgoing.on('error', reject);
    outgoing.on('response', (answer) => {
      let bytes = 0;
      answer.on('data', (data: Buffer) => (bytes += data.length) > MOST_ANSWER && answer.destroy());
      answer.on('error', () => {});
      answer.on('close', () => done(answer.statusCode ?? 0));
    });
    outgoing.end(body);
  });
}

function isAllowed(address: string, allowPrivate: boolean): boolean {
  const kind = addressKind(address);
  return kind === 'public' || (allowPrivate && (kind === 'private' || kind === 'loopback'));
}

function requireAllowed(address: string, allowPrivate: boolean): void {
  if (!isAllowed(address, allowPrivate)) throw refusal(address, address, allowPrivate);
}

function refusal(name: string, address: string, allowPrivate: boolean): CayError {
  const kind = addressKind(address);
  const curable = !allowPrivate && (kind === 'private' || kind === 'loopback');
  return new CayError('permission_denied', `Cannot send to "${name}": webhooks may not reach its address`, {
    hint: curable
      ? 'the operator allows private addresses with --webhook-private (CAY_WEBHOOK_PRIVATE=1)'
      : undefined,
  });
}

/**
 * Refuses a URL with a literal address that is not allowed, before the webhook is created. Names are checked
 * when they are used.
 */
export function requireReachable(url: string, allowPrivate: boolean): void {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0) requireAllowed(host, allowPrivate);
}
