import { QuotaSchema, type Quota } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SUMMED, requireQuota } from './quota.ts';
import { effectiveQuota, requireWithin } from '../../policy/quota-bounds.ts';

const amount = fc.integer({ min: 0, max: 100 });
const usage = fc.record({
  sandboxes: amount,
  cpus: amount,
  memoryBytes: amount,
  diskBytes: amount,
  pids: amount,
});
const some = fc.option(amount);
const limits = fc.record({ cpus: some, memoryBytes: some, diskBytes: some, pids: some });
const quotas = fc.record({ sandboxes: some, cpus: some, memoryBytes: some, diskBytes: some, pids: some });

describe('requireQuota()', () => {
  it('allows everything without a quota', () => {
    fc.assert(
      fc.property(usage, limits, (used, wanted) =>
        requireQuota(QuotaSchema.parse({}), used, { sandboxes: 1, limits: wanted }),
      ),
    );
  });

  it('allows what fits, and refuses an unlimited amount where the quota has a limit', () => {
    fc.assert(
      fc.property(usage, limits, quotas, (used, wanted, given) => {
        const quota = QuotaSchema.parse(given);
        const fits = (limit: number | null, inUse: number, more: number | null) =>
          limit === null || (more !== null && inUse + more <= limit);
        const allowed =
          fits(quota.sandboxes, used.sandboxes, 1) &&
          SUMMED.every((key) => fits(quota[key], used[key], wanted[key]));
        const attempt = () => requireQuota(quota, used, { sandboxes: 1, limits: wanted });
        if (allowed) expect(attempt).not.toThrow();
        else expect(attempt).toThrow(expect.objectContaining({ code: 'resource_exhausted' }));
      }),
    );
  });

  it('reports the quota, how much of it is used, by what, and what was asked for', () => {
    const quota = QuotaSchema.parse({ pids: 100 });
    const used = { sandboxes: 2, cpus: 0, memoryBytes: 0, diskBytes: 0, pids: 90 };
    const asked = { sandboxes: 1, limits: { cpus: null, memoryBytes: null, diskBytes: null, pids: 20 } };
    expect(() => requireQuota(quota, used, asked)).toThrow(
      expect.objectContaining({
        details: { quota: 'pids', limit: 100, used: 90, asked: 20, usedBy: { sandboxes: 90 } },
      }),
    );
  });
});

describe('the effective quota', () => {
  const quotaOf = (given: Partial<Quota>) => QuotaSchema.parse(given);

  it('is the own one, else the default, and never above the maximum', () => {
    const bounds = { defaults: { snapshots: 10, webhooks: null }, maxima: { snapshots: 15, pids: 5 } };
    expect(effectiveQuota(quotaOf({}), bounds)).toMatchObject({
      snapshots: 10,
      webhooks: null,
      pids: 5,
      sandboxes: null,
    });
    expect(effectiveQuota(quotaOf({ snapshots: 12 }), bounds)).toMatchObject({ snapshots: 12 });
    expect(effectiveQuota(quotaOf({ snapshots: 99 }), bounds)).toMatchObject({ snapshots: 15 });
  });

  it('cannot be set above the maximum', () => {
    const bounds = { defaults: {}, maxima: { snapshots: 15 } };
    expect(() => requireWithin({ snapshots: 15, webhooks: 99 }, bounds)).not.toThrow();
    expect(() => requireWithin({ snapshots: 16 }, bounds)).toThrow(
      expect.objectContaining({ code: 'invalid_argument' }),
    );
  });
});
