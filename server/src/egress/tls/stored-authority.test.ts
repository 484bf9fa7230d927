import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { sealedBox } from '../../lib/sealed-box.ts';
import { storedAuthority } from './stored-authority.ts';

describe('the stored authority', () => {
  it('is made once, kept sealed, and opened by the same key alone', async () => {
    let kept: string | undefined;
    const store = { read: async () => kept, write: async (sealed: string) => (kept ??= sealed) };
    const box = sealedBox(randomBytes(32));
    const [one, other] = await Promise.all([storedAuthority(store, box), storedAuthority(store, box)]);
    expect(one.certificate).toBe(other.certificate);
    expect((await storedAuthority(store, box)).certificate).toBe(one.certificate);
    expect(kept).not.toContain('PRIVATE KEY');
    await expect(storedAuthority(store, sealedBox(randomBytes(32)))).rejects.toThrow('sealed with key');
  });
});
