import { newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { previewTokens } from './preview-tokens.ts';

describe('preview tokens', () => {
  it('fit one sandbox, port and epoch of one installation', () => {
    const mine = previewTokens(Buffer.alloc(32, 1));
    const other = previewTokens(Buffer.alloc(32, 2));
    const id = newId('sbx');
    const token = mine.token(id, 80, 0);
    expect(mine.matches(id, 80, 0, token)).toBe(true);
    for (const wrong of [
      mine.matches(id, 81, 0, token),
      mine.matches(id, 80, 1, token),
      mine.matches(newId('sbx'), 80, 0, token),
      other.matches(id, 80, 0, token),
      mine.matches(id, 80, 0, ''),
      mine.matches(id, 80, 0, `${token}x`),
    ]) {
      expect(wrong).toBe(false);
    }
  });
});
