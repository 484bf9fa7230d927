import type { Capabilities, NetworkEnforcement } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { networkFinding } from './network-finding.ts';

function found(...states: (NetworkEnforcement | undefined)[]) {
  let at = 0;
  const capabilities = async () => {
    const network = states[Math.min(at++, states.length - 1)];
    return (network ? { enforcement: { network } } : {}) as Capabilities;
  };
  return networkFinding({ capabilities }, { withinMs: 300 });
}

describe('networkFinding', () => {
  it('says nothing of backends that build that wall themselves', async () => {
    expect(await found(undefined)).toBeUndefined();
  });

  it('waits for the result of a probe, and reports it', async () => {
    const trying = { state: 'unknown', reason: 'it is being tried' } as const;
    expect(await found(trying, { state: 'enforced', reason: 'nothing was reached' })).toMatchObject({
      state: 'works',
    });
    const open = { state: 'not_enforced', reason: 'a pod has reached another pod' } as const;
    expect(await found(trying, open)).toMatchObject({
      what: 'networkPolicy',
      state: 'absent',
      detail: 'the cluster does not enforce it: a pod has reached another pod',
      remedy: expect.stringContaining('CAY_KUBERNETES_REQUIRE_NETWORK_POLICY=1') as string,
    });
    expect(await found(trying)).toMatchObject({
      state: 'absent',
      detail: expect.stringContaining('it is not known') as string,
    });
  });
});
