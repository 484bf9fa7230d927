import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sandboxRow } from '../../../../test/conformance/records-rows.ts';
import { recordsSuite } from '../../../../test/conformance/records-suite.ts';
import { openRecords } from '../open-records.ts';

const scratch = () => mkdtempSync(join(tmpdir(), 'cay-records-'));

recordsSuite('sqlite', {
  async create() {
    const directory = scratch();
    return {
      at: { directory },
      open: (options) => openRecords({ directory, ...options }),
      dump: async () =>
        Buffer.concat(readdirSync(directory).map((name) => readFileSync(join(directory, name)))),
      destroy: async () => rmSync(directory, { recursive: true, force: true }),
    };
  },
});

let directory: string;
beforeEach(() => {
  directory = scratch();
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe('records in SQLite', () => {
  it('run transactions one at a time in the order of their calls, and reads do not wait', async () => {
    const records = await openRecords({ directory });
    const order: string[] = [];
    const slow = records.transaction(async (tx) => {
      await tx.projects.create('slow');
      await sleep(100);
      order.push('slow');
    });
    const quick = records.projects.create('quick').then(() => order.push('quick'));
    const began = performance.now();
    expect(await records.projects.list()).toEqual([]);
    expect(performance.now() - began).toBeLessThan(50);
    await Promise.all([slow, quick]);
    expect(order).toEqual(['slow', 'quick']);
    await records.close();
  });

  it('end a transaction whose body never ends, and go on', async () => {
    const records = await openRecords({ directory });
    const stuck = records.transaction(async (tx) => {
      await tx.projects.create('stuck');
      await new Promise(() => {});
    });
    const next = records.projects.create('next');
    await expect(stuck).rejects.toMatchObject({ code: 'deadline_exceeded' });
    await next;
    expect((await records.projects.list()).map(({ name }) => name)).toEqual(['next']);
    await records.close();
  }, 20_000);

  it('report a full disk, record nothing of that transaction, and recover', async (context) => {
    const mount = join(directory, 'small');
    try {
      execFileSync('mkdir', [mount]);
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', mount], { stdio: 'pipe' });
    } catch (error) {
      return context.skip(`cannot mount a small filesystem: ${(error as Error).message}`);
    }
    try {
      const records = await openRecords({ directory: mount });
      const project = (await records.projects.create('p')).id;
      const ballast = join(mount, 'ballast');
      let recorded = 0;
      const fill = (async () => {
        for (;;) {
          await records.transaction((tx) =>
            tx.sandboxes.insert(sandboxRow(project, { message: 'x'.repeat(50_000) })),
          );
          recorded++;
        }
      })();
      await expect(fill).rejects.toMatchObject({ code: 'resource_exhausted' });
      expect(await records.sandboxes.counts()).toEqual({ creating: recorded });
      rmSync(ballast, { force: true });
      execFileSync('mount', ['-o', 'remount,size=8m', mount]);
      await records.transaction((tx) => tx.sandboxes.insert(sandboxRow(project)));
      expect(await records.sandboxes.counts()).toEqual({ creating: recorded + 1 });
      await records.close();
    } finally {
      execFileSync('umount', ['-l', mount]);
    }
  });

  it('forget the promise of an event once it is in the log', async () => {
    const records = await openRecords({ directory });
    for (let n = 0; n < 100; n++) await records.transaction((tx) => tx.events.append({ type: 'one' }));
    const file = new DatabaseSync(join(directory, 'records.db'), { readOnly: true });
    expect(file.prepare('SELECT number FROM promised_events').all().length).toBeLessThan(3);
    file.close();
    expect(await records.events.lastId()).toBe(100);
    await records.close();
  });

  it('back up both databases while they are written', async () => {
    const records = await openRecords({ directory });
    await records.transaction(async (tx) => {
      await tx.projects.create('p');
      await tx.events.append({ type: 'made' });
    });
    const copy = scratch();
    await records.backup(copy);
    await records.close();
    writeFileSync(join(copy, 'secret.key'), readFileSync(join(directory, 'secret.key')), { mode: 0o600 });
    const restored = await openRecords({ directory: copy });
    expect(await restored.projects.byName('p')).toBeDefined();
    await expect.poll(() => restored.events.list({})).toMatchObject([{ type: 'made' }]);
    await restored.close();
    rmSync(copy, { recursive: true });
  });
});
