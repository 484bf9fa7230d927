import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { projectOf, sandboxRow } from '../../../../test/conformance/records-rows.ts';
import { recordsSuite } from '../../../../test/conformance/records-suite.ts';
import { postgresMissing, startPostgres, type TestPostgres } from '../../../../test/support/postgres.ts';
import { openRecords } from '../open-records.ts';

const missing = postgresMissing();
if (missing) console.warn(`skipped: records in PostgreSQL: ${missing}`);

describe.skipIf(missing !== undefined)('with a PostgreSQL server', () => {
  let postgres: TestPostgres;
  beforeAll(async () => {
    postgres = await startPostgres();
  });
  afterAll(() => postgres.stop());
  const scratch = () => mkdtempSync(join(tmpdir(), 'cay-records-'));

  async function create() {
    const directory = scratch();
    const database = await postgres.createDatabase();
    return {
      at: { directory, database },
      open: (options = {}) => openRecords({ directory, database, ...options }),
      dump: async () => {
        const address = new URL(database);
        return execFileSync(
          'pg_dump',
          ['-h', address.searchParams.get('host')!, '-U', 'cay', address.pathname.slice(1)],
          { maxBuffer: 1e8 },
        );
      },
      destroy: async () => rmSync(directory, { recursive: true, force: true }),
    };
  }
  recordsSuite('postgres', { create });

  describe('records in PostgreSQL', () => {
    it('are shared by two servers: transactions of both are serializable', async () => {
      const place = await create();
      const [one, two] = [await place.open(), await place.open()];
      const project = await projectOf(one);
      const outcomes = await Promise.allSettled(
        Array.from({ length: 12 }, (_, n) =>
          (n % 2 ? one : two).transaction(async (tx) => {
            const { sandboxes } = await tx.sandboxes.usage(project);
            if (sandboxes >= 3) throw new Error('full');
            await tx.sandboxes.insert(sandboxRow(project));
            await tx.events.append({ type: 'made', project });
          }),
        ),
      );
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
      await expect.poll(() => one.events.lastId()).toBe(3);
      expect(await two.events.verify()).toMatchObject({ ok: true, events: 3 });
      await Promise.all([one.close(), two.close()]);
      await place.destroy();
    });

    it('tell one server of the events of the other, in the order of the chain', async () => {
      const place = await create();
      const [one, two] = [await place.open(), await place.open()];
      const heard: string[] = [];
      one.events.listen(({ type }) => heard.push(type));
      await two.events.append({ type: 'of two' });
      await expect.poll(() => heard, { timeout: 3000 }).toEqual(['of two']);
      await two.transaction((tx) => tx.events.append({ type: 'again' }));
      await one.events.append({ type: 'own' });
      await expect.poll(() => heard.length, { timeout: 3000 }).toBe(3);
      expect(heard).toEqual((await one.events.list({})).map(({ type }) => type));
      await Promise.all([one.close(), two.close()]);
      await place.destroy();
    });

    it('refuse a key of another server at once when it was revoked here', async () => {
      const place = await create();
      const [one, two] = [await place.open(), await place.open()];
      const project = await projectOf(one);
      const { key, secret } = await one.keys.create({ name: 'k', project, role: 'admin' });
      expect(await two.keys.find(secret)).toBeDefined();
      await one.keys.revoke(key.id);
      expect(await two.keys.find(secret)).toBeUndefined();
      await Promise.all([one.close(), two.close()]);
      await place.destroy();
    });

    it('are unavailable while the database is away, and recover by themselves', async () => {
      const place = await create();
      const errors: unknown[] = [];
      const records = await place.open({ onError: (error: unknown) => void errors.push(error) });
      await projectOf(records);
      await postgres.disconnect(place.at.database);
      await expect.poll(() => records.ping().then(() => 'ok'), { timeout: 5000 }).toBe('ok');
      await postgres.kill();
      await expect(records.ping()).rejects.toMatchObject({ code: 'unavailable' });
      await expect(records.transaction((tx) => tx.projects.create('q'))).rejects.toMatchObject({
        code: 'unavailable',
      });
      await records.events.append({ type: 'while away' });
      await postgres.start();
      await expect
        .poll(
          () =>
            records.ping().then(
              () => 'ok',
              () => 'away',
            ),
          { timeout: 10_000 },
        )
        .toBe('ok');
      await records.transaction((tx) => tx.projects.create('q'));
      await expect
        .poll(async () => (await records.events.list({})).map(({ type }) => type), { timeout: 10_000 })
        .toEqual(['while away']);
      expect(errors.length).toBeGreaterThan(0);
      await records.close();
      await place.destroy();
    });

    it('undo a transaction whose connection is lost in its middle', async () => {
      const place = await create();
      const records = await place.open();
      await expect(
        records.transaction(async (tx) => {
          await tx.projects.create('lost');
          await postgres.disconnect(place.at.database);
          await tx.projects.create('never');
        }),
      ).rejects.toMatchObject({ code: 'unavailable' });
      await expect.poll(() => records.projects.list().catch(() => 'away'), { timeout: 5000 }).toEqual([]);
      await records.close();
      await place.destroy();
    });

    it('need the same key on every server', async () => {
      const place = await create();
      const records = await place.open();
      await records.close();
      const elsewhere = scratch();
      await expect(openRecords({ directory: elsewhere, database: place.at.database })).rejects.toMatchObject({
        code: 'failed_precondition',
        details: { keyId: expect.any(String) },
      });
      rmSync(elsewhere, { recursive: true });
      await place.destroy();
    });

    it('say what is wrong with an address, and never its password', async () => {
      const directory = scratch();
      const address = (await postgres.createDatabase()).replace('cay@', 'nobody:hunter2@');
      const failed = await openRecords({ directory, database: address }).catch((error: unknown) => error);
      expect(failed).toMatchObject({ code: 'failed_precondition' });
      const away = await openRecords({
        directory,
        database: 'postgres://cay:hunter2@127.0.0.1:1/none',
      }).catch((error: unknown) => error);
      expect(away).toMatchObject({ code: 'unavailable' });
      for (const error of [failed, away])
        expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain('hunter2');
      rmSync(directory, { recursive: true });
    });

    it('have the tables and columns of SQLite', async () => {
      const place = await create();
      await (await place.open()).close();
      const directory = scratch();
      await (await openRecords({ directory })).close();
      const sqlite = new Map<string, string[]>();
      for (const file of ['records.db', 'events.db']) {
        const database = new DatabaseSync(join(directory, file));
        for (const { name } of database
          .prepare(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'`)
          .all() as { name: string }[])
          sqlite.set(
            name,
            (database.prepare(`SELECT name FROM pragma_table_info('${name}')`).all() as { name: string }[])
              .map((column) => column.name)
              .sort(),
          );
        database.close();
      }
      const client = new pg.Client({ connectionString: place.at.database });
      await client.connect();
      const { rows } = await client.query<{ table_name: string; column_name: string }>(
        `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'
         AND column_name <> 'seq' ORDER BY column_name COLLATE "C"`,
      );
      await client.end();
      const postgresTables = Map.groupBy(rows, (row) => row.table_name);
      // The number of the last promise that was kept, and the version, are kept in other ways there.
      sqlite.delete('kept_promise');
      postgresTables.delete('cay_schema');
      postgresTables.delete('event_head');
      expect(
        Object.fromEntries(
          [...postgresTables].map(([name, columns]) => [name, columns.map((c) => c.column_name)]),
        ),
      ).toEqual(Object.fromEntries(sqlite));
      rmSync(directory, { recursive: true });
      await place.destroy();
    });
  });
});
