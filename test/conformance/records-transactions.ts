import { setTimeout as sleep } from 'node:timers/promises';
import { CayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { openIdempotency } from '../../server/src/control/tenants/idempotency.ts';
import type { Transaction } from '../../server/src/records/records.ts';
import type { RecordsWorld } from './records-suite.ts';
import { projectOf, sandboxRow } from './records-rows.ts';

export function transactionCases(world: RecordsWorld): void {
  describe('transactions', () => {
    it('record all of their writes or none', async () => {
      const { records } = world;
      await expect(
        records.transaction(async (tx) => {
          await tx.projects.create('one');
          await tx.transaction((joined) => joined.projects.create('two'));
          throw new CayError('conflict', 'no');
        }),
      ).rejects.toMatchObject({ code: 'conflict', message: 'no' });
      expect(await records.projects.list()).toEqual([]);
      await records.transaction(async (tx) => {
        await tx.projects.create('one');
        await tx.transaction((joined) => joined.projects.create('two'));
      });
      expect((await records.projects.list()).map(({ name }) => name).sort()).toEqual(['one', 'two']);
    });

    it('see their own writes, which no one else sees before the commit', async () => {
      const { records } = world;
      const id = await projectOf(records);
      const row = sandboxRow(id);
      const begun = Promise.withResolvers<void>();
      const seen = Promise.withResolvers<void>();
      const writing = records.transaction(async (tx) => {
        await tx.sandboxes.insert(row);
        expect(await tx.sandboxes.get(row.id)).toEqual(row);
        begun.resolve();
        await seen.promise;
      });
      await begun.promise;
      expect(await records.sandboxes.get(row.id)).toBeUndefined();
      expect(await records.sandboxes.list({})).toEqual([]);
      seen.resolve();
      await writing;
      expect(await records.sandboxes.get(row.id)).toEqual(row);
    });

    it('do not interleave: two writers that check and then insert keep within the quota', async () => {
      const { records } = world;
      const id = await projectOf(records);
      const most = 5;
      const outcomes = await Promise.allSettled(
        Array.from({ length: 20 }, () =>
          records.transaction(async (tx) => {
            const { sandboxes } = await tx.sandboxes.usage(id);
            await sleep(1);
            if (sandboxes >= most) throw new CayError('resource_exhausted', 'full');
            await tx.sandboxes.insert(sandboxRow(id));
          }),
        ),
      );
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(most);
      for (const outcome of outcomes)
        if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ message: 'full' });
      expect(await records.sandboxes.usage(id)).toMatchObject({ sandboxes: most });
    });

    it('lose no update of one row', async () => {
      const { records } = world;
      const id = await projectOf(records);
      const row = sandboxRow(id);
      await records.sandboxes.insert(row);
      await Promise.all(
        Array.from({ length: 20 }, () =>
          records.transaction(async (tx) => {
            const { turn } = (await tx.sandboxes.get(row.id))!;
            await tx.sandboxes.update(row.id, { turn: turn + 1 });
          }),
        ),
      );
      expect((await records.sandboxes.get(row.id))!.turn).toBe(20);
    });

    it('call back after the commit, in order, once, and never if they are undone', async () => {
      const { records } = world;
      const called: string[] = [];
      await records
        .transaction(async (tx) => {
          tx.afterCommit(() => called.push('undone'));
          throw new Error('no');
        })
        .catch(() => {});
      await records.transaction(async (tx) => {
        tx.afterCommit(() => called.push('first'));
        tx.afterCommit(() => called.push('second'));
        await tx.projects.create('p');
        expect(called).toEqual([]);
      });
      expect(called).toEqual(['first', 'second']);
    });

    it('are not undone by a callback that throws', async () => {
      const errors: unknown[] = [];
      const records = await world.reopen({ onError: (error) => void errors.push(error) });
      await records.transaction(async (tx) => {
        await tx.projects.create('p');
        tx.afterCommit(() => {
          throw new Error('of the callback');
        });
      });
      expect(await records.projects.byName('p')).toBeDefined();
      expect(errors).toMatchObject([{ message: 'of the callback' }]);
    });

    it('refuse a call on the records themselves inside of them, and a handle that has ended', async () => {
      const { records } = world;
      await expect(records.transaction(() => records.projects.list())).rejects.toMatchObject({
        code: 'internal',
      });
      await expect(records.transaction(() => records.projects.create('p'))).rejects.toMatchObject({
        code: 'internal',
      });
      await expect(records.transaction(() => records.transaction(async () => {}))).rejects.toMatchObject({
        code: 'internal',
      });
      let kept: Transaction | undefined;
      await records.transaction(async (tx) => {
        kept = tx;
      });
      await expect(kept!.projects.create('late')).rejects.toMatchObject({ code: 'internal' });
      expect(await records.projects.list()).toEqual([]);
    });

    it('make something once for an idempotency key, also when asked for at the same time', async () => {
      const { records } = world;
      const project = await projectOf(records);
      let made = 0;
      const call = (request: unknown) =>
        openIdempotency(records, { counts() {}, requireRoom: async () => {} }).once(
          { project, key: 'k', request },
          {
            async make(tx) {
              const row = sandboxRow(project);
              await tx.sandboxes.insert(row);
              tx.afterCommit(() => made++);
              return { id: row.id, value: row.id };
            },
            again: async (tx, id) => (await tx.sandboxes.get(id))?.id,
          },
        );
      const calls = await Promise.all(Array.from({ length: 8 }, () => call({ b: 1, a: [2] })));
      expect(made).toBe(1);
      expect(new Set(calls.map(({ value }) => value)).size).toBe(1);
      expect(calls.filter(({ repeated }) => !repeated)).toHaveLength(1);
      expect(await call({ a: [2], b: 1 })).toMatchObject({ repeated: true });
      await expect(call({ other: true })).rejects.toMatchObject({ code: 'conflict' });
      await records.sandboxes.delete(calls[0]!.value);
      await expect(call({ a: [2], b: 1 })).rejects.toMatchObject({ code: 'not_found' });
      await records.idempotency.forget(calls[0]!.value);
      expect(await call({ other: true })).toMatchObject({ repeated: false });
    });

    it('are there for the next server', async () => {
      const id = await projectOf(world.records, 'kept');
      const records = await world.reopen();
      expect(await records.projects.get(id)).toMatchObject({ name: 'kept' });
      await records.ping();
    });
  });
}
