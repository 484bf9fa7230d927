import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTarget, type Target } from './support/target.ts';

describe.skipIf(process.getuid?.() !== 0)('a tenant asks for less isolation than the operator allows', () => {
  let target: Target;
  beforeAll(async () => {
    target = await startTarget({ backend: 'local', runtime: 'runc' });
  });
  afterAll(() => target[Symbol.asyncDispose]());

  it('refuses the runtime "process" to a member', async () => {
    const { status } = await target.alice.call('POST', '/v1/sandboxes', { body: { runtime: 'process' } });
    expect(status).toBe(403);
    await target.requireAlive();
  });
});
