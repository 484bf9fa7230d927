import { QuotaSchema } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { requireQuota } from './quota.ts';

const amount = fc.integer({ min: 0, max: 100 });
const usage = fc.record({ sandboxes: amount, cpus: amount, memoryBytes: amount, diskBytes: amount });
const limits = fc.record({ cpus: fc.option(amount), memoryBytes: fc.option(amount), diskBytes: fc.option(amount) });

describe('requireQuota()', () => {
  it('allows everything without a quota', () => {
    fc.assert(fc.property(usage, limits, (used, wanted) => requireQuota(QuotaSchema.parse({}), used, { sandboxes: 1, limits: wanted })));
  });

  it('allows exactly what fits, and refuses what has no limit where the quota has one', () => {
    fc.assert(
      fc.property(
        usage,
        limits,
        fc.record({ sandboxes: fc.option(amount), cpus: fc.option(amount), memoryBytes: fc.option(amount), diskBytes: fc.option(amount) }),
        (used, wanted, quota) => {
          const fits = (limit: number | null, inUse: number, more: number | null) =>
            limit === null || (more !== null && inUse + more <= limit);
          const allowed =
            fits(quota.sandboxes, used.sandboxes, 1) &&
            fits(quota.cpus, used.cpus, wanted.cpus) &&
            fits(quota.memoryBytes, used.memoryBytes, wanted.memoryBytes) &&
            fits(quota.diskBytes, used.diskBytes, wanted.diskBytes);
          const attempt = () => requireQuota(quota, used, { sandboxes: 1, limits: wanted });
          if (allowed) expect(attempt).not.toThrow();
          else expect(attempt).toThrow(expect.objectContaining({ code: 'resource_exhausted' }));
        },
      ),
    );
  });
});
