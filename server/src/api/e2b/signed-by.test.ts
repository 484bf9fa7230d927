import { describe, expect, it } from 'vitest';
import { newId, type SandboxId } from '@cay/sdk/protocol';
import { accessTokens, signatureOf, type SignedFile } from './access-tokens.ts';
import { signedBy } from './signed-by.ts';

const file: SignedFile = { path: '/report.pdf', operation: 'read', user: '' };
const WRONG = `v1_${'A'.repeat(43)}`;
const PROXY = '192.0.2.1';

function opened({ known = 3 } = {}) {
  const epochs = new Map<string, number>();
  const tokens = accessTokens(new Uint8Array(32), (id) => epochs.get(id) ?? 0);
  const ids = Array.from({ length: known }, () => newId('sbx') as SandboxId);
  let nowMs = 0;
  const signers = signedBy({ ids: () => ids }, tokens, () => nowMs);
  return {
    ids,
    signers,
    tell: (id: SandboxId) => signers.tokenGiven(id, tokens.envd(id)),
    link: (id: SandboxId) => signatureOf(tokens.envd(id), file),
    revoke: (id: SandboxId) => epochs.set(id, 1),
    pass: (ms: number) => (nowMs += ms),
  };
}

describe('signedBy()', () => {
  it('finds the sandbox that signed, among recent ones and among all', () => {
    const { ids, signers, tell, link } = opened();
    tell(ids[1]!);
    for (const id of ids) expect(signers.find(file, link(id), PROXY)).toBe(id);
    expect(signers.find({ ...file, path: '/other' }, link(ids[0]!), PROXY)).toBeUndefined();
    expect(signers.find(file, 'v1_short', PROXY)).toBeUndefined();
  });

  it('finds no sandbox for a revoked token, also if it was given out before', () => {
    const { ids, signers, tell, link, revoke } = opened();
    const [id] = ids;
    tell(id!);
    const before = link(id!);
    expect(signers.find(file, before, PROXY)).toBe(id);
    revoke(id!);
    expect(signers.find(file, before, PROXY)).toBeUndefined();
    expect(signers.find(file, link(id!), PROXY)).toBe(id);
  });

  it('finds a first link behind a proxy among many that are wrong, until there are too many', () => {
    const { ids, signers, tell, link, pass } = opened();
    for (const id of ids) tell(id);
    const miss = () => signers.find(file, WRONG, PROXY);
    let missed = 0;
    const refused = expect.objectContaining({ code: 'resource_exhausted' }) as Error;
    // All that there are is searched through only so often, for everybody together.
    for (; missed < 40; missed++) expect(miss()).toBeUndefined();
    expect(signers.find(file, link(ids[0]!), PROXY)).toBe(ids[0]);
    for (; missed < 200; missed++) expect(miss).toThrow(refused);
    expect(() => signers.find(file, link(ids[1]!), PROXY)).toThrow(refused);
    // One that was found before is found again, another network is not concerned, and time heals.
    expect(signers.find(file, link(ids[0]!), PROXY)).toBe(ids[0]);
    expect(signers.find(file, link(ids[2]!), '192.0.2.2')).toBe(ids[2]);
    pass(1000);
    expect(signers.find(file, link(ids[1]!), PROXY)).toBe(ids[1]);
  });
});
