import { CreateSandboxSchema } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { invalid } from './error-answer.ts';

const faultOf = (body: object) => invalid(CreateSandboxSchema.safeParse(body).error!, 'body');

describe('invalid()', () => {
  it('says what the name of a variable or a label has to be', () => {
    expect(faultOf({ env: { '1A': 'x' } }).message).toBe(
      '"env.1A" in the body is not valid: "1A" must be a name such as PATH: letters, digits and _',
    );
    expect(faultOf({ labels: { '': 'x' } }).message).not.toContain('Invalid key');
  });

  it('names the first fault, and all of them in the details', () => {
    const { message, details } = faultOf({ limits: { pids: 0 }, workdir: 'a' });
    expect(message).toContain('is not valid: ');
    expect((details['issues'] as { path: string }[]).map(({ path }) => path).toSorted()).toEqual([
      'limits.pids',
      'workdir',
    ]);
  });
});
