/** What policies of tenants can make the server hold and do. */
import { newId, type NetworkPolicy } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../test/support/kept-bytes.ts';
import { world } from './testing/servers.ts';

describe('policies', () => {
  const large = (number: number): NetworkPolicy => ({
    allow: Array.from({ length: 500 }, (_, rule) => ({
      to: `h${number}x${rule}.example.org`,
      paths: Array.from({ length: 20 }, (_, path) => `/${number}/${rule}/${path}/a/b/c/d/*/e/f/g/h`),
    })),
  });

  it('that are replaced are not kept, and those that are take little more than their text', async () => {
    const { egress, sandbox } = world('none');
    const set = (number: number) => egress.policies.set(sandbox, [large(number), 'public']);
    set(0);
    expect(await keptBytes(async () => [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].forEach(set))).toBeLessThan(8_000_000);
    egress.policies.remove(sandbox);
  });

  it('that sandboxes share are compiled once, and go with the last of them', () => {
    const { egress, sandbox } = world('none');
    const shared = large(1);
    const other = newId('sbx');
    egress.policies.set(sandbox, [shared]);
    const begun = performance.now();
    for (let turn = 0; turn < 20; turn++) egress.policies.set(other, [shared]);
    expect(performance.now() - begun).toBeLessThan(1_000);
    egress.policies.remove(sandbox);
    egress.policies.set(other, [shared]);
    egress.policies.remove(other);
    expect(egress.policies.get(other)).toBeUndefined();
  });
});

describe('lookups', () => {
  it('take a bounded time of each minute, however many rules a name has', { timeout: 60_000 }, async () => {
    const ports = (from: number) => Array.from({ length: 64 }, (_, at) => from + at * 500).join(',');
    const rules = (from: number) =>
      Array.from({ length: 1000 }, (_, index) => `*.example.org:${ports(from + (index % 200))}`);
    const { egress, sandbox } = world({ allow: rules(2000), deny: rules(2201) });
    const begun = performance.now();
    let answered = 0;
    for (let turn = 0; turn < 10_000; turn++) {
      const { kind } = await egress.lookup(sandbox, { name: `n${turn}.example.org` });
      if (kind === 'address') answered++;
    }
    expect(answered).toBeGreaterThan(5);
    // All of them took minutes.
    expect(performance.now() - begun).toBeLessThan(20_000);
  });
});
