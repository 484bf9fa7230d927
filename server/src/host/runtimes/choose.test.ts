import { describe, expect, it } from 'vitest';
import { chooseRuntime } from './choose.ts';
import type { Runtime, RuntimeProbe } from './runtime.ts';

function runtime(name: string, probe: RuntimeProbe): Runtime {
  const refuse = () => Promise.reject(new Error('choosing only probes'));
  return {
    name,
    isolation: 'namespaces',
    guestGuards: false,
    ids: { hostId: 0, size: 65_536 },
    probe: async () => probe,
    start: refuse,
    status: refuse,
    remove: refuse,
    list: refuse,
  };
}
const works = { available: true };
const broken = { available: false, reason: 'no kernel', hint: 'Install it' };

describe('chooseRuntime()', () => {
  it('takes the strongest that works, whatever their order', async () => {
    const all = [
      runtime('process', works),
      runtime('runc', works),
      runtime('crun', works),
      runtime('runsc', works),
    ];
    expect((await chooseRuntime(all)).name).toBe('runsc');
    expect((await chooseRuntime(all.slice(0, 3))).name).toBe('crun');
    expect((await chooseRuntime([runtime('runsc', broken), ...all.slice(0, 2)])).name).toBe('runc');
  });

  it('never takes the one without isolation by itself', async () => {
    await expect(chooseRuntime([runtime('process', works), runtime('runc', broken)])).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('runc: no kernel'),
    });
    expect((await chooseRuntime([runtime('process', works)], 'process')).name).toBe('process');
  });

  it('rejects a name that is unknown and says which there are', async () => {
    await expect(chooseRuntime([runtime('runc', works)], 'kata')).rejects.toMatchObject({
      code: 'not_found',
      message: 'Runtime "kata" is unknown: there are "runc"',
    });
  });

  it('rejects one that does not work with its reason and hint, and takes no other', async () => {
    await expect(
      chooseRuntime([runtime('runc', works), runtime('runsc', broken)], 'runsc'),
    ).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('no kernel'),
      hint: 'Install it',
    });
  });
});
