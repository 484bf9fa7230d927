import type { Reply, Target } from './target.ts';

/** A sandbox that an E2B client has made for Alice, and its own address. */
export interface E2bSandbox {
  /** As `/v1` names it. */
  id: string;
  headers: Record<string, string>;
  /** One call of a service that answers with one message: `filesystem.Filesystem/Stat`. */
  call(method: string, message: unknown): Promise<Reply>;
  get(path: string, signal?: AbortSignal): Promise<Reply>;
}

export async function e2bSandbox(target: Target): Promise<E2bSandbox> {
  const made = await target.stranger('POST', '/sandboxes', {
    body: { templateID: 'base', timeout: 3600 },
    headers: { 'x-api-key': target.alice.key },
  });
  if (made.status !== 201) throw new Error(`create answered ${made.status}: ${made.text}`);
  const { sandboxID, envdAccessToken } = made.json as { sandboxID: string; envdAccessToken: string };
  const headers = { 'e2b-sandbox-id': sandboxID, 'x-access-token': envdAccessToken };
  return {
    id: `sbx_${sandboxID}`,
    headers,
    call: (method, body) => target.stranger('POST', `/${method}`, { body, headers }),
    get: (path, signal) => target.stranger('GET', path, { headers, ...(signal && { signal }) }),
  };
}
