import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { SandboxId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { Control, EnteredSandbox } from '../../../control/control.ts';
import { DEFAULT_BUDGETS, openBudgets } from '../../http/budgets.ts';
import { rateLimit } from '../../http/rate-limit.ts';
import { beginTrace } from '../../http/trace.ts';
import { accessTokens } from '../access-tokens.ts';
import { envd } from './envd.ts';

const id = 'sbx_00000000000000000000' as SandboxId;
const row = { id, project: 'p', state: 'active', labels: {}, spec: { env: {} } } as unknown as EnteredSandbox;

describe('a caller that disconnects while its token is checked', () => {
  it.each([
    ['GET', '/envs'],
    ['GET', '/files?path=/etc/hostname'],
    ['POST', '/process.Process/List'],
    ['POST', '/process.Process/Start'],
  ])('takes nothing from the budgets: %s %s', async (method, url) => {
    const budgets = openBudgets({ ...DEFAULT_BUDGETS, calls: 1, streams: 1 });
    const tokens = accessTokens(new Uint8Array(32));
    let checks = 0;
    let response: ServerResponse;
    const plane = envd({
      control: { lookup: async () => row } as unknown as Control,
      tokens: {
        ...tokens,
        async isEnvd(...given) {
          // The first check decides whether the caller is anonymous, the second admits it.
          if (++checks === 2) response.destroyed = true;
          return tokens.isEnvd(...given);
        },
      },
      budgets,
      tokenLimit: rateLimit({ perSecond: 1000, burst: 1000 }),
      anonymous: { requireTurn() {} },
      bodyTimeoutMs: 1000,
      onRefused: () => {},
      resumed: async () => {},
    });
    const request = new IncomingMessage(new Socket());
    Object.assign(request, { method, url, headers: { 'x-access-token': await tokens.envd(id) } });
    response = new ServerResponse(request);
    beginTrace(request, response);
    await plane.handle(id, request, response);
    expect(checks).toBe(2);
    expect(() => [budgets.take('p', 'call'), budgets.take('p', 'stream')]).not.toThrow();
  });
});
