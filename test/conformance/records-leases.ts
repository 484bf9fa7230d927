import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { leaseHolder } from '../../server/src/records/leases/lease-holder.ts';
import type { RecordsWorld } from './records-suite.ts';
import { projectOf, sandboxRow } from './records-rows.ts';

const LONG = 60_000;
const SHORT = 60;

export function leaseCases(world: RecordsWorld): void {
  async function sandbox(): Promise<string> {
    const project = (await world.records.projects.byName('p'))?.id ?? (await projectOf(world.records));
    const row = sandboxRow(project, { state: 'active' });
    await world.records.sandboxes.insert(row);
    return row.id;
  }

  describe('leases', () => {
    it('are held by one server at a time, and free once released', async () => {
      const { leases } = world.records;
      const id = await sandbox();
      const one = await leases.acquire({ sandbox: id, holder: 'a', operation: 'rollback', ttlMs: LONG });
      expect(one).toMatchObject({ sandbox: id, holder: 'a', operation: 'rollback', fence: 1 });
      await expect(
        leases.acquire({ sandbox: id, holder: 'b', operation: 'pause', ttlMs: LONG }),
      ).rejects.toMatchObject({
        code: 'conflict',
        details: { sandbox: id, operation: 'pause', holder: 'a', underWay: 'rollback' },
      });
      await leases.release(one);
      const two = await leases.acquire({ sandbox: id, holder: 'b', operation: 'pause', ttlMs: LONG });
      expect(two.fence).toBe(2);
      await expect(leases.guard(one)).rejects.toMatchObject({
        code: 'conflict',
        details: { leaseLost: true, fence: 1, currentFence: 2 },
      });
      // What was lost is not released a second time.
      await leases.release(one);
      await leases.guard(two);
    });

    it('are given to one of many that ask at the same moment', async () => {
      const id = await sandbox();
      const outcomes = await Promise.allSettled(
        Array.from({ length: 10 }, (_, index) =>
          world.records.transaction((tx) =>
            tx.leases.acquire({ sandbox: id, holder: `s${index}`, operation: 'stop', ttlMs: LONG }),
          ),
        ),
      );
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
      for (const outcome of outcomes)
        if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 'conflict' });
    });

    it('keep their fence for the server that has them already', async () => {
      const { leases } = world.records;
      const id = await sandbox();
      const request = { sandbox: id, holder: 'a', operation: 'snapshot', ttlMs: LONG };
      const one = await leases.acquire(request);
      const again = await leases.acquire({ ...request, operation: 'compare' });
      expect(again).toMatchObject({ fence: one.fence, operation: 'compare' });
      await leases.release(one);
      await leases.guard(again);
      const other = { sandbox: id, holder: 'b', operation: 'stop', ttlMs: LONG };
      await expect(leases.acquire(other)).rejects.toMatchObject({ code: 'conflict' });
      await leases.release(again);
      await expect(leases.guard(again)).rejects.toMatchObject({ code: 'conflict' });
      expect(await leases.acquire(other)).toMatchObject({ fence: one.fence + 1 });
    });

    it('can be taken over once they have expired, and the stale holder is fenced off', async () => {
      const { records } = world;
      const id = await sandbox();
      const stale = await records.leases.acquire({
        sandbox: id,
        holder: 'a',
        operation: 'rollback',
        ttlMs: SHORT,
      });
      await sleep(SHORT + 30);
      // Expired, and not taken over: its writes are still the only ones.
      await records.transaction((tx) => tx.sandboxes.update(id, { message: 'a' }), { guardedBy: stale });
      const next = await records.leases.acquire({ sandbox: id, holder: 'b', operation: 'stop', ttlMs: LONG });
      expect(next.fence).toBe(stale.fence + 1);
      await expect(
        records.transaction((tx) => tx.sandboxes.update(id, { message: 'stale' }), { guardedBy: stale }),
      ).rejects.toMatchObject({ code: 'conflict', details: { leaseLost: true } });
      await expect(records.leases.renew(stale, LONG)).rejects.toMatchObject({ code: 'conflict' });
      expect((await records.sandboxes.get(id))!.message).toBe('a');
      await records.transaction((tx) => tx.sandboxes.update(id, { message: 'b' }), { guardedBy: next });
      expect((await records.sandboxes.get(id))!.message).toBe('b');
    });

    it('last as long as they are renewed', async () => {
      const { leases } = world.records;
      const id = await sandbox();
      let lease = await leases.acquire({ sandbox: id, holder: 'a', operation: 'fork', ttlMs: 300 });
      for (let times = 0; times < 4; times++) {
        await sleep(120);
        lease = await leases.renew(lease, 300);
        await expect(
          leases.acquire({ sandbox: id, holder: 'b', operation: 'fork', ttlMs: LONG }),
        ).rejects.toMatchObject({ code: 'conflict' });
      }
    });

    it('go by the clock of the database, whatever the clocks of servers say', async () => {
      const id = await sandbox();
      const late = await world.reopen({ now: () => Date.now() - 3_600_000, ageing: () => 0 });
      const lease = await late.leases.acquire({
        sandbox: id,
        holder: 'late',
        operation: 'stop',
        ttlMs: 5_000,
      });
      expect(Math.abs(lease.expiresAtMs - Date.now() - 5_000)).toBeLessThan(2_000);
      const other = world.place.at.database
        ? await world.place.open({ now: () => Date.now() + 3_600_000 })
        : late;
      await expect(
        other.leases.acquire({ sandbox: id, holder: 'early', operation: 'stop', ttlMs: LONG }),
      ).rejects.toMatchObject({ code: 'conflict' });
      if (other !== late) await other.close();
    });

    it('are committed or undone with the intent that they belong to', async () => {
      const { records } = world;
      const id = await sandbox();
      const request = { sandbox: id, holder: 'a', operation: 'resize', ttlMs: LONG };
      await records
        .transaction(async (tx) => {
          await tx.leases.acquire(request);
          throw new Error('no intent');
        })
        .catch(() => {});
      expect(await records.leases.get(id)).toBeUndefined();
      const lease = await records.transaction(async (tx) => {
        await tx.sandboxes.update(id, { operation: { kind: 'resize', limits: { cpus: 2 } } });
        return tx.leases.acquire(request);
      });
      await records.transaction(
        async (tx) => {
          await tx.sandboxes.update(id, { operation: null });
          await tx.leases.release(lease);
        },
        { guardedBy: lease },
      );
      expect(await records.leases.releaseAll('a')).toBe(0);
    });

    it('go with their sandbox, and need one', async () => {
      const { records } = world;
      const id = await sandbox();
      const request = { sandbox: id, holder: 'a', operation: 'remove', ttlMs: LONG };
      const lease = await records.leases.acquire(request);
      await records.sandboxes.delete(id);
      expect(await records.leases.get(id)).toBeUndefined();
      await expect(records.leases.guard(lease)).rejects.toMatchObject({ code: 'conflict' });
      await expect(records.leases.acquire(request)).rejects.toThrow();
    });
  });

  describe('a holder of leases', () => {
    it('renews them, shares one between operations of a sandbox, and lets go with the last', async () => {
      const { records } = world;
      const id = await sandbox();
      const mine = leaseHolder(records, { holder: 'mine', ttlMs: 200, onError: () => {} });
      const theirs = leaseHolder(records, { holder: 'theirs', ttlMs: 200, onError: () => {} });
      const one = await records.transaction((tx) => mine.acquire(tx, id, 'snapshot'));
      const two = await records.transaction((tx) => mine.acquire(tx, id, 'compare'));
      await sleep(500);
      await expect(records.transaction((tx) => theirs.acquire(tx, id, 'pause'))).rejects.toMatchObject({
        code: 'conflict',
      });
      await one.release();
      await records.transaction(async () => {}, { guardedBy: two.lease });
      await expect(records.transaction((tx) => theirs.acquire(tx, id, 'pause'))).rejects.toMatchObject({
        code: 'conflict',
      });
      await two.release();
      const other = await records.transaction((tx) => theirs.acquire(tx, id, 'pause'));
      expect(other.signal.aborted).toBe(false);
      await mine.close();
      await theirs.close();
      expect((await records.leases.get(id))!.expiresAtMs).toBe(0);
    });

    it('says so at once when a lease was lost', async () => {
      const { records } = world;
      const id = await sandbox();
      const mine = leaseHolder(records, { holder: 'mine', ttlMs: 150, onError: () => {} });
      const held = await records.transaction((tx) => mine.acquire(tx, id, 'snapshot'));
      await records.leases.releaseAll('mine');
      await records.leases.acquire({ sandbox: id, holder: 'theirs', operation: 'stop', ttlMs: LONG });
      await expect.poll(() => held.signal.aborted, { timeout: 2_000 }).toBe(true);
      expect(held.signal.reason).toMatchObject({ code: 'conflict', details: { leaseLost: true } });
      await mine.close();
      expect((await records.leases.get(id))!.holder).toBe('theirs');
    });
  });
}
