import { CayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { Control, EnteredSandbox } from '../../../control/control.ts';
import { DEFAULT_BUDGETS, openBudgets } from '../../http/budgets.ts';
import { rateLimit } from '../../http/rate-limit.ts';
import { accessTokens } from '../access-tokens.ts';
import { envd } from './envd.ts';

describe('adopt()', () => {
  it('goes on past a sandbox whose guest does not answer', async () => {
    const rows = ['sbx_mute', 'sbx_gone', 'sbx_well'].map(
      (id) => ({ id, project: 'p', labels: { 'e2b/auto-resume': 'true' } }) as unknown as EnteredSandbox,
    );
    const asked: string[] = [];
    const enter = async (_principal: unknown, id: string) => {
      if (id === 'sbx_gone') throw new CayError('failed_precondition', 'stopped');
      const commands = async () => {
        asked.push(id);
        if (id === 'sbx_mute') throw new CayError('unavailable', 'The guest has not dialled within 5000 ms');
        return [];
      };
      return { guest: { commands } };
    };
    const plane = envd({
      control: {
        enter,
        ids: async () => rows,
        lookup: async (id: string) => rows.find((row) => row.id === id),
      } as unknown as Control,
      tokens: accessTokens(new Uint8Array(32)),
      budgets: openBudgets(DEFAULT_BUDGETS),
      tokenLimit: rateLimit({ perSecond: 1000, burst: 1000 }),
      anonymous: { requireTurn() {} },
      bodyTimeoutMs: 1000,
      onRefused: () => {},
      resumed: async () => {},
    });
    await expect(plane.adopt()).resolves.toBeUndefined();
    expect(asked).toEqual(['sbx_mute', 'sbx_well']);
  });
});
