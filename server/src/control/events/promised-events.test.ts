import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../records/database.ts';
import { openEventLog } from './event-log.ts';
import { promisedEvents } from './promised-events.ts';

let dir: string;
beforeEach(() => (dir = mkdtempSync(join(tmpdir(), 'cay-promised-'))));
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function open() {
  const database = openDatabase(join(dir, 'records.db'));
  const log = openEventLog(join(dir, 'events.db'));
  const events = promisedEvents(database, log);
  const types = () => events.list({}).map(({ type }) => type);
  const close = () => {
    log.close();
    database.close();
  };
  return { database, log, events, types, close };
}

describe('promised events', () => {
  it('are written after the commit, in order, and not before', () => {
    const { database, events, types, close } = open();
    events.append({ type: 'a' });
    database.transaction(() => {
      events.append({ type: 'b' });
      database.transaction(() => events.append({ type: 'c' }));
      expect(types()).toEqual(['a']);
    });
    expect(types()).toEqual(['a', 'b', 'c']);
    close();
  });

  it('are not written when the transaction is rolled back', () => {
    const { database, events, types, close } = open();
    const undone = () =>
      database.transaction(() => {
        events.append({ type: 'undone' });
        throw new Error('no');
      });
    expect(undone).toThrow('no');
    events.append({ type: 'after' });
    expect(types()).toEqual(['after']);
    close();
  });

  it('are written by the next server when this one dies in between, once and with their time', async () => {
    const { database, log, close } = open();
    // The server dies right after the commit.
    const dying = promisedEvents(
      { ...database, inTransaction: true, afterCommit: () => {} },
      log,
      () => 12_345,
    );
    database.transaction(() => dying.append({ type: 'first', data: { n: 1 } }));
    database.transaction(() => dying.append({ type: 'second' }));
    close();
    for (let round = 0; round < 2; round++) {
      const next = open();
      expect(next.events.list({}).map(({ type, atMs }) => [type, atMs])).toEqual([
        ['first', 12_345],
        ['second', 12_345],
      ]);
      expect(await next.events.verify()).toMatchObject({ ok: true });
      next.close();
    }
  });

  it('are deleted from the records once written', () => {
    const { database, events, close } = open();
    for (let i = 0; i < 100; i++) database.transaction(() => events.append({ type: 'one' }));
    expect(database.get<{ n: number }>('SELECT count(*) AS n FROM promised_events')!.n).toBeLessThan(3);
    close();
  });
});
