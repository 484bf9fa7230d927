/**
 * The records by themselves: commits and reads of SQLite and, with a PostgreSQL server on this
 * machine, of that one, in turn in one run.
 *
 *     node bench/records.ts
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openRecords } from '../server/src/records/open-records.ts';
import type { Records } from '../server/src/records/records.ts';
import { sandboxRow, specOf } from '../test/conformance/records-rows.ts';
import { postgresMissing, startPostgres } from '../test/support/postgres.ts';
import { interleaved } from './measure.ts';

const directory = mkdtempSync(join(tmpdir(), 'cay-bench-'));
const spec = specOf({ env: { TOKEN: 'x' }, limits: { memoryBytes: 1e8 } });

/** Another text every time: SQLite does not write what is there already. */
let written = 0;
const next = () => `m${++written}`;

async function asynchronous(records: Records) {
  const row = sandboxRow((await records.projects.create('p')).id, { spec, state: 'active' });
  await records.sandboxes.insert(row);
  return {
    get: async () => void (await records.sandboxes.get(row.id)),
    update: async () => void (await records.sandboxes.update(row.id, { message: next() })),
    transaction: () =>
      records.transaction(async (tx) => {
        await tx.sandboxes.get(row.id);
        await tx.sandboxes.update(row.id, { message: next() });
        await tx.sandboxes.update(row.id, { reason: next() });
      }),
    /** The same with a lease taken in it, and released in the next. */
    leased: () =>
      records.transaction(async (tx) => {
        await tx.sandboxes.get(row.id);
        await tx.sandboxes.update(row.id, { message: next() });
        await tx.sandboxes.update(row.id, { reason: next() });
        const lease = await tx.leases.acquire({ sandbox: row.id, holder: 'h', operation: 'o', ttlMs: 1000 });
        await tx.leases.release(lease);
      }),
    /** A read while a transaction is open, on the second connection. */
    async getBeside() {
      let began = 0;
      let took = 0;
      await records.transaction(async (tx) => {
        await tx.sandboxes.update(row.id, { message: next() });
        await new Promise<void>((resolve, reject) => {
          // Outside the transaction, as another request is.
          outside.run(() => {
            began = performance.now();
            records.sandboxes.get(row.id).then(() => {
              took = performance.now() - began;
              resolve();
            }, reject);
          });
        });
      });
      return took;
    },
    async events() {
      await records.events.append({ type: 'bench', sandbox: row.id, data: { n: 1 } });
    },
    close: () => records.close(),
  };
}

const outside = { run: (work: () => void) => queue.push(work) };
const queue: (() => void)[] = [];
const pump = setInterval(() => {
  for (const work of queue.splice(0)) work();
}, 1);

const sqlite = await asynchronous(await openRecords({ directory: mkdtempSync(join(directory, 'async-')) }));
const postgres = postgresMissing() ? undefined : await startPostgres({ durable: true });
const remote =
  postgres &&
  (await asynchronous(
    await openRecords({
      directory: mkdtempSync(join(directory, 'postgres-')),
      database: await postgres.createDatabase(),
    }),
  ));
if (!postgres) console.log(`without PostgreSQL: ${postgresMissing()}`);

type Tasks = Record<string, () => Promise<number | void>>;
const reads = await interleaved<string>(
  5000,
  { 'get sqlite': sqlite.get, ...(remote && { 'get postgres': remote.get }) } as Tasks,
  { warmUp: 500 },
);
const writes = await interleaved<string>(
  400,
  {
    'update sqlite': sqlite.update,
    ...(remote && { 'update postgres': remote.update }),
    'transaction sqlite': sqlite.transaction,
    'with a lease sqlite': sqlite.leased,
    ...(remote && { 'transaction postgres': remote.transaction, 'with a lease postgres': remote.leased }),
    'get during a transaction sqlite': sqlite.getBeside,
    'event sqlite': sqlite.events,
    ...(remote && { 'event postgres': remote.events }),
  } as Tasks,
  { warmUp: 20 },
);
for (const [name, { p50, p99 }] of Object.entries({ ...reads, ...writes }))
  console.log(
    `${name.padEnd(34)} p50 ${(p50 * 1000).toFixed(1).padStart(9)} µs   p99 ${(p99 * 1000).toFixed(1)} µs`,
  );

const updates = { sqlite: sqlite.update, ...(remote && { postgres: remote.update }) };
const commits = new Map<string, number>();
const ROUNDS = 10;
const SLICE_MS = 200;
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, update] of Object.entries(updates)) {
    const until = performance.now() + SLICE_MS;
    while (performance.now() < until) {
      await update();
      commits.set(name, (commits.get(name) ?? 0) + 1);
    }
  }
}
for (const [name, count] of commits)
  console.log(
    `commits one after the other, ${name}: ${Math.round((count * 1000) / (ROUNDS * SLICE_MS))} a second`,
  );

clearInterval(pump);
await Promise.all([sqlite.close(), remote?.close()]);
await postgres?.stop();
rmSync(directory, { recursive: true, force: true });
