/** The control plane with a full disk, and with a sandbox that fails. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, QuotaSchema } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../backends/backend.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { openExpiry } from './expiry.ts';
import { openRecords } from '../../records/open-records.ts';
import { openSqliteEvents } from '../../records/sqlite/open-events.ts';
import {
  asked,
  installation,
  memoryBackend,
  stuckBackend,
  type Installation,
  type MemoryBackend,
} from '../testing/test-control.ts';

const root = process.getuid?.() === 0;

describe.skipIf(!root)(
  `a disk that is full${root ? '' : ' (skipped: to mount a small one needs root)'}`,
  () => {
    let disk: string;
    beforeEach(() => {
      disk = mkdtempSync('/tmp/cay-full-');
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk]);
    });
    afterEach(() => {
      // A lazy unmount: a failed test has not closed its files.
      execFileSync('umount', ['-l', disk]);
      rmSync(disk, { recursive: true });
    });

    const filler = () => join(disk, 'filler');
    /** Fills the disk, including the space that SQLite has reserved in its files. */
    async function fill(write: () => Promise<void>): Promise<void> {
      for (let size = 1024 * 1024; size >= 512; size /= 2) {
        try {
          for (;;) writeFileSync(filler(), Buffer.alloc(size), { flag: 'a' });
        } catch {
          // Full for this size; a smaller write may still fit.
        }
      }
      for (let writes = 0; writes < 5_000; writes++) {
        try {
          await write();
        } catch {
          return;
        }
      }
    }

    it('is `resource_exhausted`, and records can still be read', async () => {
      const records = await openRecords({ directory: disk });
      const { projects, keys } = records;
      const project = await projects.create('default');
      const { key, secret } = await keys.create({ name: 'k', project: project.id, role: 'admin' });
      let made = 0;
      await fill(async () => void (await projects.create(`project-${made++}`)));
      const full = { code: 'resource_exhausted' };
      await expect(projects.create('one more')).rejects.toMatchObject(full);
      await expect(records.transaction((tx) => tx.projects.create('one more'))).rejects.toMatchObject(full);
      expect(await projects.byName('default')).toEqual(project);
      // A key works although its last use cannot be recorded.
      expect(await keys.find(secret)).toMatchObject({ id: key.id });
      rmSync(filler());
      expect((await projects.create('one more')).name).toBe('one more');
      await records.close();
    });

    it('delays events and loses none', async () => {
      const errors: unknown[] = [];
      const { log, close } = await openSqliteEvents(join(disk, 'events.db'), {
        key: undefined,
        now: Date.now,
        ageing: Date.now,
        onError: (error) => errors.push(error),
      });
      await fill(async () => {
        await log.append({ type: 'filling', data: { text: 'x'.repeat(1000) } });
        if (errors.length > 0) throw errors[0];
      });
      expect(errors).not.toEqual([]);
      const written = await log.lastId();
      // Nobody waits for the disk.
      await log.append({ type: 'held' });
      expect(await log.lastId()).toBe(written);
      rmSync(filler());
      await log.append({ type: 'last' });
      await expect.poll(() => log.lastId(), { timeout: 5000 }).toBe(written + 3);
      // The event that found the disk full is written first.
      const types = (await log.list({ after: written })).map(({ type }) => type);
      expect(types).toEqual(['filling', 'held', 'last']);
      expect(await log.verify()).toMatchObject({ ok: true });
      await close();
    });
  },
);

/** Every transaction of the records finds the disk full. */
function refuseWrites({ once = false } = {}): void {
  armFaultPoints({
    'records.transaction.begun'() {
      if (once) armFaultPoints();
      diskFull();
    },
  });
}
const allowWrites = () => armFaultPoints();

function diskFull(): never {
  throw new CayError('resource_exhausted', 'The disk is full');
}

describe('a control plane with failures', () => {
  let place: Installation;
  let backend: MemoryBackend;
  beforeEach(() => {
    place = installation();
    backend = memoryBackend();
  });
  afterEach(() => {
    allowWrites();
    place.remove();
  });

  /** The backend with some verbs changed. */
  const changed = (changes: Partial<Backend>): Backend =>
    new Proxy(backend, {
      get: (target, name) => (Reflect.get(changes, name) ?? Reflect.get(target, name)) as unknown,
    });

  it('removes a sandbox although the disk is too full to record the intent', async () => {
    const { control, principal, sql } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    // The removal itself makes room, so only the record of its intent is refused.
    refuseWrites({ once: true });
    await control.remove(principal, sandbox.id);
    allowWrites();
    expect((await backend.observe(sandbox.id)).phase).toBe('absent');
    expect(sql('SELECT id FROM sandboxes')).toEqual([]);
    await control.close();
  });

  it('deletes the record of a sandbox that could not be made as soon as there is room', async () => {
    const ensure = async () => {
      refuseWrites();
      diskFull();
    };
    const { control, principal } = await place.open(changed({ ensure }));
    await expect(control.create(principal, asked())).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect((await control.list(principal, { limit: 10 })).sandboxes).toHaveLength(1);
    allowWrites();
    for (
      let tries = 0;
      (await control.list(principal, { limit: 10 })).sandboxes.length > 0 && tries < 400;
      tries++
    )
      await sleep(10);
    expect((await control.list(principal, { limit: 10 })).sandboxes).toEqual([]);
    await control.close();
  });

  it('reports a stop that it cannot record as done, and records it as soon as there is room', async () => {
    const { control, principal } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    refuseWrites();
    await expect(control.stop(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await backend.observe(sandbox.id)).phase).toBe('stopped');
    allowWrites();
    for (
      let tries = 0;
      (await control.get(principal, sandbox.id)).state !== 'stopped' && tries < 400;
      tries++
    )
      await sleep(10);
    expect((await control.get(principal, sandbox.id)).state).toBe('stopped');
    await control.close();
  });

  it('starts a sandbox that has ended although the disk was too full to record that', async () => {
    const { control, principal } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    refuseWrites();
    await expect(control.stop(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    allowWrites();
    expect((await control.start(principal, sandbox.id)).state).toBe('active');
    expect((await backend.observe(sandbox.id)).phase).toBe('ready');
    await control.close();
  });

  it('reports a removal that it cannot record as done, and deletes the record as soon as there is room', async () => {
    const { control, principal, sandboxes } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    refuseWrites();
    await expect(control.remove(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await backend.observe(sandbox.id)).phase).toBe('absent');
    allowWrites();
    for (let tries = 0; (await sandboxes.get(sandbox.id)) && tries < 400; tries++) await sleep(10);
    expect(await sandboxes.get(sandbox.id)).toBeUndefined();
    await control.close();
  });

  it('stops a sandbox that it cannot record as started', async () => {
    const { control, principal } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    await control.stop(principal, sandbox.id);
    refuseWrites();
    await expect(control.start(principal, sandbox.id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    allowWrites();
    expect((await backend.observe(sandbox.id)).phase).toBe('stopped');
    expect((await control.get(principal, sandbox.id)).state).toBe('stopped');
    await control.close();
  });

  it('records the end of one sandbox while another one is busy', async () => {
    const stuck = stuckBackend(backend, 'stop', false);
    const { control, principal } = await place.open(stuck.backend);
    const { sandbox: busy } = await control.create(principal, asked());
    const { sandbox: other } = await control.create(principal, asked());
    void control.stop(principal, busy.id);
    await stuck.reached;
    backend.crash(busy.id, 'crashed');
    backend.crash(other.id, 'crashed');
    await expect.poll(async () => (await control.get(principal, other.id)).state).toBe('failed');
  });

  it('starts no more at the same time than the quota allows', async () => {
    const slow = changed({
      async ensure(...request) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        return backend.ensure(...request);
      },
    });
    const { control, principal, projects } = await place.open(slow);
    const made = await Promise.all(
      [1, 2, 3].map(() => control.create(principal, asked({ limits: { cpus: 2 } }))),
    );
    for (const { sandbox } of made) await control.stop(principal, sandbox.id);
    await projects.setQuota(principal.project, QuotaSchema.parse({ cpus: 4 }));
    const started = await Promise.allSettled(made.map(({ sandbox }) => control.start(principal, sandbox.id)));
    expect(started.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'fulfilled', 'rejected']);
    expect(started.find(({ status }) => status === 'rejected')).toMatchObject({
      reason: { code: 'resource_exhausted' },
    });
    await control.close();
  });

  it('retries a removal that failed', async () => {
    let fails = 1;
    const failing = changed({
      async remove(id) {
        if (fails-- > 0) throw new CayError('unavailable', 'not now');
        await backend.remove(id);
      },
    });
    const { control, principal, clock } = await place.open(failing);
    const { sandbox } = await control.create(principal, asked());
    const { sandbox: other } = await control.create(principal, asked());
    await expect(control.remove(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await control.get(principal, sandbox.id)).state).toBe('destroying');
    clock.nowMs += 60_000;
    // Any change makes the timer read the clock again.
    await control.update(principal, other.id, { timeoutMs: 600_000 });
    await expect.poll(async () => (await backend.observe(sandbox.id)).phase).toBe('absent');
    await control.close();
  });
});

describe('the expiry timer', () => {
  it('goes on after the records could not be read', async () => {
    const errors: unknown[] = [];
    let reads = 0;
    const { promise, resolve } = Promise.withResolvers<void>();
    const expiry = openExpiry({
      async shorten() {},
      next: async () => 0,
      async due() {
        if (++reads > 1) resolve();
        else throw new Error('unreadable');
        return [];
      },
      now: () => 0,
      onError: (error) => errors.push(error),
    });
    expiry.start(async () => {});
    await promise;
    await expiry.stop();
    expect(errors).toHaveLength(1);
  });
});
