import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GENESIS, chainHash, hex, type Link, type StoredEvent } from '../events/chain.ts';
import type { EventLogOptions } from '../events/event-log.ts';
import { openSqliteEvents } from './open-events.ts';

let directory: string;
let path: string;
const key = randomBytes(32);

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-audit-'));
  path = join(directory, 'events.db');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

async function openEventLog(at: string, options: Partial<EventLogOptions>) {
  const now = options.now ?? Date.now;
  const { log, close } = await openSqliteEvents(at, {
    key,
    now,
    ageing: now,
    onError: (error) => expect.unreachable(String(error)),
    ...options,
  });
  return { ...log, close };
}

async function fill(count: number, options: Partial<EventLogOptions> = {}): Promise<string> {
  const log = await openEventLog(path, { key, ...options });
  for (let i = 0; i < count; i++)
    await log.append({ type: 'file.written', sandbox: `s${i % 3}`, data: { path: `/tmp/${i}` } });
  await log.close();
  return path;
}

function edit<T>(work: (sqlite: DatabaseSync) => T): T {
  const sqlite = new DatabaseSync(path);
  try {
    return work(sqlite);
  } finally {
    sqlite.close();
  }
}

async function verify(options: Partial<EventLogOptions> = {}) {
  const log = await openEventLog(path, { key, ...options });
  try {
    return await log.verify();
  } finally {
    await log.close();
  }
}

/** Recomputes every hash from `from` on, as an attacker without the key would. */
function rehash(sqlite: DatabaseSync, from: number): void {
  let link = (sqlite.prepare('SELECT id, hash FROM events WHERE id < ? ORDER BY id DESC LIMIT 1').get(from) ??
    GENESIS) as unknown as Link;
  for (const row of sqlite
    .prepare('SELECT * FROM events WHERE id >= ? ORDER BY id')
    .all(from) as unknown as StoredEvent[]) {
    link = { id: row.id, hash: chainHash(link.hash, row) };
    sqlite.prepare('UPDATE events SET hash = ? WHERE id = ?').run(link.hash, link.id);
  }
}

type Operation = { name: string; broken: number; act(sqlite: DatabaseSync): void };
const COUNT = 40;
const place = fc.integer({ min: 1, max: COUNT });
const column = fc.constantFrom('at', 'type', 'project', 'sandbox', 'key', 'outcome', 'data');

const operations: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({ id: place, column }).map(({ id, column: name }) => ({
    name: `change ${name} of ${id}`,
    broken: id,
    act: (sqlite: DatabaseSync) =>
      sqlite.exec(
        `UPDATE events SET ${name} = ${name === 'at' ? 'at + 1' : `ifnull(${name}, '') || ' '`} WHERE id = ${id}`,
      ),
  })),
  place.map((id) => ({
    name: `change the hash of ${id}`,
    broken: id,
    act: (sqlite: DatabaseSync) =>
      void sqlite.prepare('UPDATE events SET hash = ? WHERE id = ?').run(randomBytes(32), id),
  })),
  place.map((id) => ({
    name: `remove ${id}`,
    broken: id,
    act: (sqlite: DatabaseSync) => sqlite.exec(`DELETE FROM events WHERE id = ${id}`),
  })),
  fc.tuple(place, place).map(([from, to]) => ({
    name: `remove ${from} and ${to} and close the gap`,
    broken: Math.min(from, to),
    act(sqlite: DatabaseSync) {
      sqlite.exec(`DELETE FROM events WHERE id IN (${from}, ${to})`);
      const rows = sqlite.prepare('SELECT id FROM events ORDER BY id').all() as { id: number }[];
      rows.forEach((row, index) => sqlite.exec(`UPDATE events SET id = ${index + 1} WHERE id = ${row.id}`));
    },
  })),
  fc
    .tuple(place, place)
    .filter(([one, other]) => one !== other)
    .map(([one, other]) => ({
      name: `swap ${one} and ${other}`,
      broken: Math.min(one, other),
      act: (sqlite: DatabaseSync) =>
        sqlite.exec(`UPDATE events SET id = -1 WHERE id = ${one}; UPDATE events SET id = ${one} WHERE id = ${other};
                     UPDATE events SET id = ${other} WHERE id = -1`),
    })),
  place.map((id) => ({
    name: `insert before ${id}`,
    broken: id,
    act: (sqlite: DatabaseSync) =>
      sqlite.exec(`UPDATE events SET id = -id WHERE id >= ${id}; UPDATE events SET id = 1 - id WHERE id < 0;
                   INSERT INTO events SELECT ${id}, at, type, project, 'other', key, outcome, data, hash FROM events WHERE id = ${id + 1}`),
  })),
);

describe('the chain of events', () => {
  it('is intact after restarts, and reports its head', async () => {
    await fill(1500);
    const first = await verify();
    expect(first).toMatchObject({ ok: true, events: 1500, first: 1, last: 1500, pruned: 0, sealed: true });
    expect(first.head).toMatch(/^[0-9a-f]{64}$/);
    await fill(10);
    expect(await verify()).toMatchObject({ ok: true, events: 1510, last: 1510 });
  });

  it('reports which event was changed, removed, inserted or moved', async () => {
    await fill(COUNT);
    const good = edit((sqlite) => sqlite.prepare('SELECT * FROM events').all());
    await fc.assert(
      fc.asyncProperty(operations, async (operation) => {
        edit((sqlite) => {
          sqlite.exec('DELETE FROM events');
          const insert = sqlite.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)');
          for (const row of good) insert.run(...Object.values(row));
          sqlite.exec(`UPDATE sqlite_sequence SET seq = ${COUNT}`);
          operation.act(sqlite);
        });
        expect(await verify(), operation.name).toMatchObject({ ok: false, broken: { id: operation.broken } });
      }),
      { numRuns: 60 },
    );
  });

  it('cannot be recomputed without the key of the installation', async () => {
    await fill(1200);
    edit((sqlite) => {
      sqlite.exec("UPDATE events SET sandbox = 'another' WHERE id = 7");
      rehash(sqlite, 7);
    });
    expect(await verify()).toMatchObject({ ok: false, broken: { id: 1000 } });
    edit((sqlite) =>
      sqlite.exec('UPDATE checkpoints SET hash = (SELECT hash FROM events WHERE events.id = checkpoints.id)'),
    );
    expect(await verify()).toMatchObject({
      ok: false,
      broken: { id: 1000, reason: expect.stringContaining('not written by this') },
    });
    edit((sqlite) => sqlite.exec('DELETE FROM checkpoints'));
    expect(await verify()).toMatchObject({
      ok: false,
      broken: { id: 1000, reason: expect.stringContaining('missing') },
    });
  });

  it('detects that its last events are missing', async () => {
    await fill(20);
    edit((sqlite) => sqlite.exec('DELETE FROM events WHERE id > 15'));
    expect(await verify()).toMatchObject({ ok: false, last: 15, broken: { id: 16 } });
    edit((sqlite) => sqlite.exec('UPDATE sqlite_sequence SET seq = 15'));
    expect(await verify()).toMatchObject({ ok: false, broken: { id: 16 } });
  });

  it('prunes the oldest of the project that has too many, and of no other, and stays intact', async () => {
    const log = await openEventLog(path, { key, keep: { events: 50 } });
    for (let i = 0; i < 700; i++) {
      await log.append({ type: 'call.failed', project: 'prj_noisy' });
      if (i % 20 === 0) await log.append({ type: 'file.written', project: 'prj_quiet', data: { i } });
      if (i % 100 === 0) await log.append({ type: 'pressure.changed' });
    }
    await log.close();
    const after = await openEventLog(path, { key, keep: { events: 50 } });
    expect(await after.list({ project: 'prj_quiet' })).toHaveLength(35);
    expect((await after.list({ project: 'prj_quiet' }))[0]?.data).toEqual({ i: 0 });
    expect(await after.list({ project: 'prj_noisy' })).toHaveLength(50);
    const verdict = await after.verify();
    expect(verdict).toMatchObject({ ok: true, events: 92, last: 742, sealed: true });
    expect(verdict.gaps).toBeGreaterThan(10);
    // The chain continues after them.
    await after.append({ type: 'file.written', project: 'prj_quiet' });
    expect(await after.verify()).toMatchObject({ ok: true, events: 93, last: 743 });
    await after.close();
    // Without the key it is a valid chain, but of an unknown origin.
    expect(await verify({ key: undefined, keep: {} })).toMatchObject({ ok: true, sealed: false });
  });

  it('detects a gap that was forged, moved or extended', async () => {
    const gapped = async () => {
      const log = await openEventLog(path, { key, keep: { events: 5 } });
      for (let i = 0; i < 30; i++) {
        await log.append({ type: 'call.failed', project: 'prj_noisy' });
        if (i % 10 === 0) await log.append({ type: 'file.written', project: 'prj_quiet' });
      }
      await log.close();
    };
    const forgeries: ((sqlite: DatabaseSync) => void)[] = [
      // The second event of the quiet project is removed, and the gap before it is extended over it.
      (sqlite) => {
        const [quiet] = sqlite
          .prepare("SELECT id, hash FROM events WHERE project = 'prj_quiet' ORDER BY id LIMIT 1 OFFSET 1")
          .all();
        const { id, hash } = quiet as unknown as Link;
        sqlite.prepare('UPDATE gaps SET last = ?, hash = ? WHERE last = ?').run(id, hash, id - 1);
        sqlite.prepare('DELETE FROM events WHERE id = ?').run(id);
      },
      (sqlite) => sqlite.exec('UPDATE gaps SET last = last - 1 WHERE first = (SELECT max(first) FROM gaps)'),
      (sqlite) => sqlite.exec('DELETE FROM gaps WHERE first = (SELECT max(first) FROM gaps)'),
      (sqlite) => sqlite.exec("UPDATE gaps SET seal = x'00'"),
    ];
    for (const forge of forgeries) {
      rmSync(path, { force: true });
      await gapped();
      expect(await verify({ keep: { events: 5 } })).toMatchObject({ ok: true });
      edit(forge);
      expect(await verify({ keep: { events: 5 } })).toMatchObject({ ok: false });
    }
  });

  it('detects a forged event also after those around it were pruned', async () => {
    const written = async (rounds: number, events: number) => {
      const log = await openEventLog(path, { key, keep: { events } });
      for (let i = 0; i < rounds; i++) {
        await log.append({ type: 'call.failed', project: 'prj_noisy' });
        if (i % 100 === 0) await log.append({ type: 'file.written', project: 'prj_quiet', data: { i } });
      }
      await log.close();
    };
    const forgeries: ((sqlite: DatabaseSync) => void)[] = [
      // An event is removed, and replaced by a gap without a seal.
      (sqlite) => {
        const quiet = sqlite
          .prepare("SELECT id, hash FROM events WHERE project = 'prj_quiet' AND id > 800 LIMIT 1")
          .get();
        const { id, hash } = quiet as unknown as Link;
        sqlite.prepare('DELETE FROM events WHERE id = ?').run(id);
        sqlite.prepare("INSERT INTO gaps VALUES (?, ?, ?, x'00')").run(id, id, hash);
      },
      // An event is changed, and all later hashes are recomputed.
      (sqlite) => {
        sqlite.exec(`UPDATE events SET data = '{}' WHERE project = 'prj_quiet' AND id > 800 AND id < 850`);
        rehash(sqlite, 800);
      },
      // The oldest are pruned.
      (sqlite) => {
        const { hash } = sqlite.prepare('SELECT hash FROM events WHERE id = 300').get() as {
          hash: Uint8Array;
        };
        sqlite.exec('DELETE FROM events WHERE id <= 300');
        sqlite.prepare('UPDATE anchor SET id = 300, hash = ?').run(hash);
      },
    ];
    for (const forge of forgeries) {
      rmSync(path, { force: true });
      await written(1200, 5000);
      edit(forge);
      await written(10, 50);
      await written(10, 50);
      expect(await verify({ keep: { events: 50 } })).toMatchObject({ ok: false });
    }
  });

  it('stays intact when the oldest are pruned, by number and by age', async () => {
    let nowMs = 1000;
    const now = () => nowMs;
    await fill(2500, { keep: { events: 300 }, now });
    const byNumber = await verify();
    expect(byNumber).toMatchObject({ ok: true, last: 2500, pruned: 2200, events: 300 });
    nowMs += 10_000;
    await fill(5, { now });
    await fill(0, { keep: { ageMs: 5000 }, now });
    const byAge = await verify({ keep: { ageMs: 5000 }, now });
    expect(byAge).toMatchObject({ ok: true, last: 2505, pruned: 2500, events: 5 });
    // The anchor of the pruned events cannot be changed either.
    edit((sqlite) => sqlite.prepare('UPDATE anchor SET hash = ?').run(randomBytes(32)));
    expect(await verify()).toMatchObject({ ok: false });
  });

  it('is added to the events of an earlier version', async () => {
    edit((sqlite) =>
      sqlite.exec(`CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, type TEXT NOT NULL, project TEXT,
                   sandbox TEXT, key TEXT, data TEXT NOT NULL) STRICT; CREATE INDEX events_sandbox ON events (sandbox, id);
                   INSERT INTO events (id, at, type, data) VALUES (41, 1, 'old', '{}'), (42, 2, 'old', '{"a":1}')`),
    );
    await fill(1);
    expect(await verify()).toMatchObject({ ok: true, events: 3, first: 41, last: 43, pruned: 40 });
  });

  it('is exported with its hashes', async () => {
    let nowMs = 0;
    const log = await openEventLog(path, { key, now: () => nowMs });
    for (nowMs = 1; nowMs <= 1200; nowMs++)
      await log.append({ type: nowMs % 2 ? 'odd' : 'even', sandbox: 's', key: nowMs % 3 ? 'k' : null });
    const all = await Array.fromAsync(log.export({}));
    expect(all).toHaveLength(1200);
    expect(all.at(-1)!.hash).toBe((await log.verify()).head);
    let link = GENESIS.hash;
    for (const { hash, id, atMs: at, type, project, sandbox, key: by, outcome, data } of all) {
      link = chainHash(link, {
        id,
        at,
        type,
        project,
        sandbox,
        key: by,
        outcome,
        data: JSON.stringify(data),
      });
      expect(hash).toBe(hex(link));
    }
    const some = await Array.fromAsync(log.export({ type: 'odd', key: 'k', sinceMs: 100, untilMs: 200 }));
    expect(some.map(({ atMs }) => atMs)).toEqual(
      all
        .filter((e) => e.type === 'odd' && e.key === 'k' && e.atMs >= 100 && e.atMs < 200)
        .map(({ atMs }) => atMs),
    );
    expect(await Array.fromAsync(log.export({ sandbox: 'none' }))).toEqual([]);
    await log.close();
  });

  it('bounds the data of an event', async () => {
    const log = await openEventLog(path, { key });
    await log.append({
      type: 'big',
      data: { text: 'x'.repeat(1e6), list: Array.from({ length: 1e5 }, (_, i) => i) },
    });
    await log.append({
      type: 'bigger',
      data: Object.fromEntries(
        Array.from({ length: 1e4 }, (_, i) => [`${i}${'k'.repeat(600)}`, 'v'.repeat(600)]),
      ),
    });
    for (const { data } of await log.list({})) {
      expect(JSON.stringify(data).length).toBeLessThan(20_000);
      expect(data['truncated']).toBe(true);
    }
    expect((await log.verify()).ok).toBe(true);
    await log.close();
  });
});
