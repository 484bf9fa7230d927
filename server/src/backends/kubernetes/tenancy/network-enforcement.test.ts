import type { NetworkEnforcement } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { networkEnforcing } from './network-enforcement.ts';

const runtime = { name: 'default', gvisor: false };
const refused = { code: 'failed_precondition', details: { reason: 'network_policy_not_enforced' } };

function enforcing(answers: (NetworkEnforcement | Error)[], required = true) {
  const errors: unknown[] = [];
  const tried: AbortSignal[] = [];
  const probe = async (_: unknown, signal: AbortSignal) => {
    tried.push(signal);
    await new Promise((resolve) => setTimeout(resolve, 5));
    const answer = answers[Math.min(tried.length, answers.length) - 1]!;
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const made = networkEnforcing({ probe, required, onError: (error) => errors.push(error), againMs: 20 });
  return { made, errors, tried };
}

describe('networkEnforcing', () => {
  it('tries once, and remembers what was seen', async () => {
    const { made, errors, tried } = enforcing([{ state: 'enforced', reason: 'nothing was reached' }]);
    expect(made.current).toEqual({ state: 'unknown', reason: 'it has not been tried yet' });
    await expect(made.require()).rejects.toMatchObject(refused);
    for (let i = 0; i < 3; i++) made.begin(runtime);
    expect(made.current).toEqual({ state: 'unknown', reason: 'it is being tried' });
    await expect(made.require()).resolves.toBeUndefined();
    expect(made.current.state).toBe('enforced');
    expect([tried.length, errors.length]).toEqual([1, 0]);
    await made.stop();
  });

  it('refuses with what was reached where it is demanded, and only tells where it is not', async () => {
    const open = { state: 'not_enforced', reason: 'a pod has reached another pod (10.0.0.1:7072)' } as const;
    const strict = enforcing([open]);
    strict.made.begin(runtime);
    await expect(strict.made.require()).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('10.0.0.1:7072') as string,
    });
    const lenient = enforcing([open], false);
    lenient.made.begin(runtime);
    await expect(lenient.made.require()).resolves.toBeUndefined();
    await expect.poll(() => lenient.made.current).toEqual(open);
    for (const { errors } of [strict, lenient]) expect(errors).toMatchObject([refused]);
    await Promise.all([strict.made.stop(), lenient.made.stop()]);
  });

  it('tries again what could not be seen, until it is stopped', async () => {
    const { made, tried } = enforcing([
      new Error('no image'),
      { state: 'enforced', reason: 'nothing was reached' },
    ]);
    made.begin(runtime);
    await expect(made.require()).rejects.toMatchObject({
      message: expect.stringContaining('no image') as string,
    });
    await expect.poll(() => made.current.state).toBe('enforced');
    expect(tried).toHaveLength(2);
    await made.stop();
    const never = enforcing([new Error('no')]);
    never.made.begin(runtime);
    await never.made.stop();
    expect(never.tried[0]!.aborted).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(never.tried).toHaveLength(1);
  });
});
