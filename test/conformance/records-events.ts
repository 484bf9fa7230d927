import { setTimeout as sleep } from 'node:timers/promises';
import type { CayEvent } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { RecordsWorld } from './records-suite.ts';

export function eventCases(world: RecordsWorld): void {
  const types = async () => (await world.records.events.list({})).map(({ type }) => type);

  describe('events', () => {
    it('enter the log with the commit, in order, and never if it is undone', async () => {
      const { records } = world;
      await records
        .transaction(async (tx) => {
          await tx.events.append({ type: 'undone' });
          throw new Error('no');
        })
        .catch(() => {});
      await records.transaction(async (tx) => {
        await tx.events.append({ type: 'first', project: 'p', data: { n: 1 } });
        await tx.events.append({ type: 'second', sandbox: 's', outcome: 'denied' });
      });
      await records.events.append({ type: 'third', key: 'k' });
      await expect.poll(types).toEqual(['first', 'second', 'third']);
      expect(await records.events.list({ project: 'p' })).toMatchObject([{ id: 1, data: { n: 1 } }]);
      expect(await records.events.list({ sandbox: 's' })).toMatchObject([{ id: 2, outcome: 'denied' }]);
      expect(await records.events.list({ after: 1, limit: 1 })).toMatchObject([{ id: 2 }]);
      expect(await records.events.lastId()).toBe(3);
    });

    it('are in no list before the commit, also those of a transaction that joined', async () => {
      const { records } = world;
      await records.events.append({ type: 'before' });
      const appended = Promise.withResolvers<void>();
      const seen = Promise.withResolvers<void>();
      const writing = records.transaction(async (tx) => {
        await tx.events.append({ type: 'outer' });
        await tx.transaction((joined) => joined.events.append({ type: 'joined' }));
        appended.resolve();
        await seen.promise;
      });
      await appended.promise;
      expect(await types()).toEqual(['before']);
      await records.events.append({ type: 'meanwhile' });
      expect(await types()).toEqual(['before', 'meanwhile']);
      seen.resolve();
      await writing;
      await expect.poll(types).toEqual(['before', 'meanwhile', 'outer', 'joined']);
    });

    it('are followed over several pages while more are appended', async () => {
      const { records } = world;
      await Promise.all(
        Array.from({ length: 2500 }, (_, n) =>
          records.events.append({ type: 'old', project: n % 2 ? 'a' : 'b' }),
        ),
      );
      const seen: number[] = [];
      const abort = new AbortController();
      const reading = (async () => {
        for await (const event of records.events.follow({ after: 0, project: 'a', signal: abort.signal })) {
          seen.push(event.id);
          if (event.type === 'last') abort.abort();
        }
      })();
      await records.events.append({ type: 'new', project: 'a' });
      await records.events.append({ type: 'last', project: 'a' });
      await reading;
      expect(seen).toHaveLength(1252);
      expect(new Set(seen).size).toBe(1252);
      expect(seen).toEqual(seen.toSorted((one, other) => one - other));
    });

    it('are followed from any place, then live, each once and in order', async () => {
      const { records } = world;
      for (let n = 0; n < 30; n++) await records.events.append({ type: 'old', project: n % 2 ? 'a' : 'b' });
      const abort = new AbortController();
      const seen: CayEvent[] = [];
      const heard: string[] = [];
      const stop = records.events.listen(({ type }) => heard.push(type));
      const reading = (async () => {
        for await (const event of records.events.follow({ after: 4, project: 'a', signal: abort.signal })) {
          seen.push(event);
          if (event.type === 'last') abort.abort();
        }
      })();
      await sleep(50);
      await records.events.append({ type: 'of b', project: 'b' });
      await records.transaction((tx) => tx.events.append({ type: 'new', project: 'a' }));
      await records.events.append({ type: 'last', project: 'a' });
      await reading;
      stop();
      expect(seen.map(({ id }) => id)).toEqual(seen.map(({ id }) => id).toSorted((a, b) => a - b));
      expect(seen.filter(({ type }) => type === 'old')).toHaveLength(13);
      expect(seen.slice(-2).map(({ type }) => type)).toEqual(['new', 'last']);
      expect(heard).toEqual(['of b', 'new', 'last']);
    });

    it('form one chain that verifies, with many writers and after the next server has opened it', async () => {
      await Promise.all(
        Array.from({ length: 300 }, (_, n) =>
          n % 3 === 0
            ? world.records.transaction((tx) => tx.events.append({ type: 'promised' }))
            : world.records.events.append({ type: 'plain', data: { n } }),
        ),
      );
      await expect.poll(async () => (await types()).length).toBe(300);
      expect(await world.records.events.verify()).toMatchObject({ ok: true, events: 300, sealed: true });
      const records = await world.reopen();
      await records.events.append({ type: 'later' });
      const verdict = await records.events.verify();
      expect(verdict).toMatchObject({ ok: true, events: 301, last: 301 });
      const exported = await Array.fromAsync(records.events.export({ type: 'later' }));
      expect(exported).toMatchObject([{ id: 301, hash: verdict.head }]);
    });

    it('are pruned for each project by itself, and the chain still verifies', async () => {
      const records = await world.reopen({ keepEvents: { events: 10 } });
      for (let n = 0; n < 40; n++) {
        await records.events.append({ type: 'many', project: 'loud' });
        if (n % 10 === 0) await records.events.append({ type: 'few', project: 'quiet' });
      }
      while (await records.events.prune());
      expect(await records.events.list({ project: 'loud' })).toHaveLength(10);
      expect(await records.events.list({ project: 'quiet' })).toHaveLength(4);
      expect(await records.events.verify()).toMatchObject({ ok: true, events: 14 });
    });

    it('have bounded data, and keep text that a database could refuse', async () => {
      const { records } = world;
      await records.events.append({ type: 'large', data: { text: 'x'.repeat(100_000) } });
      await records.events.append({ type: 'odd', data: { text: 'a\0b\ud800' } });
      const [large, odd] = await records.events.list({});
      expect(JSON.stringify(large!.data).length).toBeLessThan(20_000);
      expect(odd!.data).toEqual({ text: 'a\0b\ud800' });
      expect(await records.events.verify()).toMatchObject({ ok: true });
    });
  });
}
