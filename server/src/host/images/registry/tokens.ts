/** The `Authorization` of requests to registries: tokens for one repository each, or a password. */
import { CayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import { readBounded } from './read-bounded.ts';
import type { Challenge } from './challenge.ts';
import type { Credentials } from './credentials.ts';
import type { Transport } from './transport.ts';

export interface Tokens {
  /** What the last answer to a challenge of this registry was, while it is valid. */
  known(registry: string, repository: string): string | undefined;
  /** Answers a challenge. Nothing if the operator has no credential for a registry that wants a password. */
  answer(
    registry: string,
    repository: string,
    challenge: Challenge,
    signal: AbortSignal | undefined,
  ): Promise<string | undefined>;
}

const MOST_ANSWER = 1024 * 1024;
const MOST_TOKENS = 1000;
const DEFAULT_SECONDS = 60;
const TokenSchema = z.object({
  token: z
    .string()
    .max(256 * 1024)
    .optional(),
  access_token: z
    .string()
    .max(256 * 1024)
    .optional(),
  expires_in: z.number().optional(),
});

export function openTokens(transport: Transport, credentials: Credentials, now = Date.now): Tokens {
  const tokens = new Map<string, { value: string; untilMs: number }>();
  const keyOf = (registry: string, repository: string) => `${registry} ${repository}`;

  function remember(key: string, value: string, seconds: number): string {
    if (tokens.size >= MOST_TOKENS) tokens.delete(tokens.keys().next().value!);
    tokens.set(key, { value, untilMs: now() + Math.min(Math.max(seconds, DEFAULT_SECONDS), 3600) * 900 });
    return value;
  }

  async function fetchToken(
    registry: string,
    repository: string,
    { parameters }: Challenge,
    signal: AbortSignal | undefined,
  ): Promise<{ token: string; seconds: number }> {
    const { realm = '', service } = parameters;
    if (!URL.canParse(realm))
      throw new CayError('unavailable', `The registry "${registry}" names no place for tokens`);
    const url = new URL(realm);
    if (service !== undefined) url.searchParams.set('service', service);
    // The scope is chosen here, and not taken from the registry's answer.
    url.searchParams.set('scope', `repository:${repository}:pull`);
    const own = await credentials.of(registry);
    const refresh = own?.identityToken;
    const call =
      refresh === undefined
        ? { url, headers: own && { authorization: basic(own.username, own.password) } }
        : {
            url: new URL(realm),
            form: new URLSearchParams([
              ['grant_type', 'refresh_token'],
              ['refresh_token', refresh],
              ['client_id', 'cay'],
              ...url.searchParams,
            ]),
          };
    const answer = await transport.get(call.url, { ...call, ...(signal && { signal }) });
    const body = await readBounded(answer, MOST_ANSWER, `the token of "${registry}"`);
    if (answer.statusCode !== 200) throw denied(registry, repository, own !== undefined, answer.statusCode);
    const parsed = TokenSchema.safeParse(jsonOf(body));
    const token = parsed.data?.token ?? parsed.data?.access_token;
    if (token === undefined || !/^[\x21-\x7e]+$/.test(token))
      throw new CayError('unavailable', `The registry "${registry}" gave no token`);
    return { token, seconds: parsed.data?.expires_in ?? DEFAULT_SECONDS };
  }

  return {
    known(registry, repository) {
      const known = tokens.get(keyOf(registry, repository));
      return known && known.untilMs > now() ? known.value : undefined;
    },
    async answer(registry, repository, challenge, signal) {
      const key = keyOf(registry, repository);
      tokens.delete(key);
      if (challenge.scheme === 'basic') {
        const own = await credentials.of(registry);
        return own && remember(key, basic(own.username, own.password || (own.identityToken ?? '')), 3600);
      }
      const { token, seconds } = await fetchToken(registry, repository, challenge, signal);
      return remember(key, `Bearer ${token}`, seconds);
    },
  };
}

export function denied(registry: string, repository: string, known: boolean, status?: number): CayError {
  return new CayError(
    status === 429 || (status !== undefined && status >= 500) ? 'unavailable' : 'permission_denied',
    `The registry "${registry}" does not give "${repository}"${known ? " with the operator's credentials" : ''}`,
    {
      details: { registry, ...(status !== undefined && { status }) },
      hint: known
        ? 'check the name, and the credentials in the file of --registry-config'
        : 'check the name; if it is private, --registry-config of "cay up" names credentials',
    },
  );
}

function basic(username: string, password: string): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}
