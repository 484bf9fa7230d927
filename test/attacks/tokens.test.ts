/**
 * The holder of a revoked key still has what it got with the key: access tokens, signed addresses, links.
 * They can be revoked, too.
 */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { onEachPlatform } from './support/platforms.ts';
import type { Target, Tenant } from './support/target.ts';

const HASH = 'a'.repeat(64);

/** Everything that opens something without a key, and whether it still does. */
async function holdings(target: Target, tenant: Tenant): Promise<Record<string, () => Promise<boolean>>> {
  const made = await tenant.call('POST', '/sandboxes', { body: { templateID: 'base', timeout: 300 } });
  expect(made.status, made.text).toBe(201);
  const { sandboxID, envdAccessToken } = made.json as { sandboxID: string; envdAccessToken: string };
  const port = await tenant.call('PUT', `/v1/sandboxes/sbx_${sandboxID}/ports/3000`, {
    body: { visibility: 'private' },
  });
  const { token } = port.json as { token: string };
  const link = await tenant.call('GET', `/templates/mine/files/${HASH}`);
  const upload = new URL((link.json as { url: string }).url);
  const signature = createHash('sha256')
    .update(`/etc/passwd:read:root:${envdAccessToken}`)
    .digest('base64')
    .replace(/=+$/, '');
  const signed = `/files?path=${encodeURIComponent('/etc/passwd')}&username=root&signature=${encodeURIComponent(`v1_${signature}`)}`;
  const inside = { 'e2b-sandbox-id': sandboxID, 'e2b-sandbox-port': '49983' };
  const status = async (method: string, path: string, headers: Record<string, string>, body?: string) =>
    (await target.stranger(method, path, { headers, ...(body !== undefined && { body }) })).status;
  return {
    'an access token': async () =>
      (await status('GET', '/envs', { ...inside, 'x-access-token': envdAccessToken })) === 200,
    'a signed address': async () => (await status('GET', signed, inside)) === 200,
    // No program listens there, and only a client that may know of the port gets that answer.
    'the token of a private port': async () =>
      (await status('GET', `/preview/sbx_${sandboxID}/3000/`, { 'x-cay-preview-token': token })) !== 404,
    'an upload link': async () =>
      (await status('PUT', upload.pathname + upload.search, {}, 'no archive')) !== 401,
  };
}

async function opening(held: Record<string, () => Promise<boolean>>): Promise<string[]> {
  const names: string[] = [];
  for (const [name, opens] of Object.entries(held)) if (await opens()) names.push(name);
  return names;
}

const ALL = ['an access token', 'a signed address', 'the token of a private port', 'an upload link'];

onEachPlatform('what was got with a key', (platform) => {
  let target: Target;
  beforeAll(async () => {
    target = await platform.start();
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose]());

  it('is worthless once the tokens of its project are revoked, and others keep theirs', async () => {
    const [mine, others] = [await holdings(target, target.alice), await holdings(target, target.bob)];
    expect(await opening(mine)).toEqual(ALL);
    const { status } = await target.alice.call('POST', '/v1/projects/alice/revoke-tokens');
    expect(status).toBe(204);
    expect(await opening(mine)).toEqual([]);
    expect(await opening(others)).toEqual(ALL);
    expect(await opening(await holdings(target, target.alice))).toEqual(ALL);
  });

  it('goes with the key if that is asked for, and stays if not', async () => {
    const made = await target.admin.call('POST', '/v1/keys', { body: { name: 'lost', project: 'bob' } });
    const { key } = made.json as { key: { id: string } };
    const again = await target.admin.call('POST', '/v1/keys', { body: { name: 'lost too', project: 'bob' } });
    const held = await holdings(target, target.bob);
    await target.admin.call('DELETE', `/v1/keys/${key.id}`);
    expect(await opening(held)).toEqual(ALL);
    await target.admin.call(
      'DELETE',
      `/v1/keys/${(again.json as { key: { id: string } }).key.id}?tokens=true`,
    );
    expect(await opening(held)).toEqual([]);
  });

  it('cannot be revoked by another project, nor without a key', async () => {
    const held = await holdings(target, target.bob);
    expect((await target.alice.call('POST', '/v1/projects/bob/revoke-tokens')).status).toBe(404);
    expect((await target.alice.call('POST', `/v1/projects/${target.bob.project}/revoke-tokens`)).status).toBe(
      404,
    );
    expect((await target.stranger('POST', '/v1/projects/bob/revoke-tokens')).status).toBe(401);
    expect(await opening(held)).toEqual(ALL);
  });
});
