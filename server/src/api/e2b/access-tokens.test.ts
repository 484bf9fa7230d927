import { getSignature } from 'e2b';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { newId } from '@cay/sdk/protocol';
import { accessTokens, signatureOf } from './access-tokens.ts';

const tokens = accessTokens(Buffer.from('of this installation'));

describe('accessTokens()', () => {
  it('fits one sandbox, one purpose and one installation', () => {
    const [id, other] = [newId('sbx'), newId('sbx')];
    expect(tokens.isEnvd(id, tokens.envd(id))).toBe(true);
    expect(tokens.isTraffic(id, tokens.traffic(id))).toBe(true);
    expect(tokens.claimed(tokens.envd(id))).toBe(id);
    for (const wrong of [
      undefined,
      '',
      tokens.envd(other),
      tokens.traffic(id),
      accessTokens(Buffer.from('another')).envd(id),
    ]) {
      expect(tokens.isEnvd(id, wrong)).toBe(false);
    }
    expect(tokens.isTraffic(id, tokens.envd(id))).toBe(false);
  });

  it('fits nothing that differs in a single character', () => {
    const id = newId('sbx');
    const token = tokens.envd(id);
    fc.assert(
      fc.property(fc.nat(token.length - 1), fc.string({ minLength: 1, maxLength: 1 }), (at, character) => {
        fc.pre(token[at] !== character);
        expect(tokens.isEnvd(id, token.slice(0, at) + character + token.slice(at + 1))).toBe(false);
      }),
    );
  });

  it('signs as the clients do, and takes a signature for what it was made for alone', async () => {
    const id = newId('sbx');
    await fc.assert(
      fc.asyncProperty(
        fc.string(),
        fc.constantFrom('read', 'write' as const),
        fc.string(),
        async (path, operation, user) => {
          const theirs = await getSignature({
            path,
            operation: operation as 'read',
            user,
            envdAccessToken: tokens.envd(id),
          });
          const signed = { path, operation: operation as 'read', user };
          expect(signatureOf(tokens.envd(id), signed)).toBe(theirs.signature);
          expect(tokens.isSignature(id, signed, theirs.signature)).toBe(true);
          expect(tokens.isSignature(newId('sbx'), signed, theirs.signature)).toBe(false);
          expect(tokens.isSignature(id, { ...signed, expiration: 1 }, theirs.signature)).toBe(false);
        },
      ),
      { numRuns: 30 },
    );
  });
});
