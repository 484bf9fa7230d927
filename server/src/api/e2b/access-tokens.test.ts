import { getSignature } from 'e2b';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { newId } from '@cay/sdk/protocol';
import { accessTokens, signatureOf } from './access-tokens.ts';

const tokens = accessTokens(Buffer.from('of this installation'));

describe('accessTokens()', () => {
  it('fits one sandbox, one purpose and one installation', async () => {
    const [id, other] = [newId('sbx'), newId('sbx')];
    expect(await tokens.isEnvd(id, await tokens.envd(id))).toBe(true);
    expect(await tokens.isTraffic(id, await tokens.traffic(id))).toBe(true);
    expect(tokens.claimed(await tokens.envd(id))).toBe(id);
    for (const wrong of [
      undefined,
      '',
      await tokens.envd(other),
      await tokens.traffic(id),
      await accessTokens(Buffer.from('another')).envd(id),
      await accessTokens(Buffer.from('of this installation'), async () => 1).envd(id),
    ]) {
      expect(await tokens.isEnvd(id, wrong)).toBe(false);
    }
    expect(await tokens.isTraffic(id, await tokens.envd(id))).toBe(false);
  });

  it('fits nothing that differs in a single character', async () => {
    const id = newId('sbx');
    const token = await tokens.envd(id);
    await fc.assert(
      fc.asyncProperty(
        fc.nat(token.length - 1),
        fc.string({ minLength: 1, maxLength: 1 }),
        async (at, character) => {
          fc.pre(token[at] !== character);
          const changed = token.slice(0, at) + character + token.slice(at + 1);
          expect(await tokens.isEnvd(id, changed)).toBe(false);
        },
      ),
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
          const envdAccessToken = await tokens.envd(id);
          const theirs = await getSignature({ path, operation: operation as 'read', user, envdAccessToken });
          const signed = { path, operation: operation as 'read', user };
          const { signature } = theirs;
          expect(signatureOf(envdAccessToken, signed)).toBe(signature);
          expect(await tokens.isSignature(id, signed, signature)).toBe(true);
          expect(tokens.isSignatureIn(0, id, signed, signature)).toBe(true);
          expect(tokens.isSignatureIn(1, id, signed, signature)).toBe(false);
          expect(await tokens.isSignature(newId('sbx'), signed, signature)).toBe(false);
          expect(await tokens.isSignature(id, { ...signed, expiration: 1 }, signature)).toBe(false);
        },
      ),
      { numRuns: 30 },
    );
  });
});
