import { describe, expect, it } from 'vitest';
import { newId, type SandboxId } from '@cay/sdk/protocol';
import { accessTokens, signatureOf, type SignedFile } from './access-tokens.ts';
import { signedBy } from './signed-by.ts';

const file: SignedFile = { path: '/report.pdf', operation: 'read', user: '' };
const WRONG = `v1_${'A'.repeat(43)}`;
const PROXY = '192.0.2.1';

function opened({ known = 3 } = {}) {
  const epochs = new Map<string, number>();
  const tokens = accessTokens(new Uint8Array(32), async (id) => epochs.get(id) ?? 0);
  const ids = Array.from({ length: known }, () => newId('sbx') as SandboxId);
  let nowMs = 0;
  const control = {
    // Each has a project of its own.
    ids: async () => ids.map((id) => ({ id, project: id as string })),
    tokens: { epochs: { revoked: async () => epochs } },
  };
  const signers = signedBy(control, tokens, () => nowMs);
  return {
    ids,
    signers,
    tell: async (id: SandboxId) => signers.tokenGiven(id, await tokens.envd(id)),
    link: async (id: SandboxId) => signatureOf(await tokens.envd(id), file),
    revoke: (id: SandboxId) => epochs.set(id, 1),
    pass: (ms: number) => (nowMs += ms),
  };
}

describe('signedBy()', () => {
  it('finds the sandbox that signed, among recent ones and among all', async () => {
    const { ids, signers, tell, link } = opened();
    await tell(ids[1]!);
    for (const id of ids) expect(await signers.find(file, await link(id), PROXY)).toBe(id);
    expect(await signers.find({ ...file, path: '/other' }, await link(ids[0]!), PROXY)).toBeUndefined();
    expect(await signers.find(file, 'v1_short', PROXY)).toBeUndefined();
  });

  it('finds no sandbox for a revoked token, also if it was given out before', async () => {
    const { ids, signers, tell, link, revoke } = opened();
    const [id] = ids;
    await tell(id!);
    const before = await link(id!);
    expect(await signers.find(file, before, PROXY)).toBe(id);
    revoke(id!);
    expect(await signers.find(file, before, PROXY)).toBeUndefined();
    expect(await signers.find(file, await link(id!), PROXY)).toBe(id);
  });

  it('finds a first link behind a proxy among many that are wrong, until there are too many', async () => {
    const { ids, signers, tell, link, pass } = opened();
    for (const id of ids) await tell(id);
    const miss = () => signers.find(file, WRONG, PROXY);
    let missed = 0;
    const refused = expect.objectContaining({ code: 'resource_exhausted' }) as Error;
    // All that there are is searched through only so often, for everybody together.
    for (; missed < 40; missed++) expect(await miss()).toBeUndefined();
    expect(await signers.find(file, await link(ids[0]!), PROXY)).toBe(ids[0]);
    for (; missed < 200; missed++) await expect(miss()).rejects.toThrow(refused);
    await expect((async () => signers.find(file, await link(ids[1]!), PROXY))()).rejects.toThrow(refused);
    // One that was found before is found again, another network is not concerned, and time heals.
    expect(await signers.find(file, await link(ids[0]!), PROXY)).toBe(ids[0]);
    expect(await signers.find(file, await link(ids[2]!), '192.0.2.2')).toBe(ids[2]);
    pass(1000);
    expect(await signers.find(file, await link(ids[1]!), PROXY)).toBe(ids[1]);
  });
});
