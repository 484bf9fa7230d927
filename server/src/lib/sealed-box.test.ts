import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { isSealed, keyIdOf, sealedBox } from './sealed-box.ts';

const box = sealedBox(randomBytes(32));

describe('a sealed box', () => {
  it.each(['', 'text', 'ü'.repeat(100_000)])('opens a sealed value', (text) => {
    const sealed = box.seal(text, 'here');
    expect(isSealed(sealed)).toBe(true);
    expect(keyIdOf(sealed)).toBe(box.keyId);
    expect(box.open(sealed, 'here').toString()).toBe(text);
  });

  it('never seals the same in the same way', () => {
    expect(box.seal('text', 'here')).not.toBe(box.seal('text', 'here'));
  });

  it('opens nothing of another place, another key, or that was changed', () => {
    const sealed = box.seal('text', 'here');
    const changed = sealed.slice(0, -2) + (sealed.endsWith('AA') ? 'BB' : 'AA');
    expect(() => box.open(sealed, 'there')).toThrow();
    expect(() => box.open(changed, 'here')).toThrow();
    expect(() => box.open(sealed.slice(0, 30), 'here')).toThrow();
    expect(() => sealedBox(randomBytes(32)).open(sealed, 'here')).toThrow(
      `It was sealed with key ${box.keyId}`,
    );
  });

  it('takes no key of another length', () => {
    expect(() => sealedBox(randomBytes(16))).toThrow('A key has 32 bytes, not 16');
  });
});
