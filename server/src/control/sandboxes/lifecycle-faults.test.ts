/** The control plane with a full disk, and with a sandbox that fails. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, QuotaSchema } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Backend } from '../../backends/backend.ts';
import { openExpiry } from './expiry.ts';
import { openDatabase } from '../../records/database.ts';
import { openEventLog } from '../events/event-log.ts';
import { keyRecords } from '../../records/keys.ts';
import { projectRecords } from '../../records/projects.ts';
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
    function fill(write: () => void): void {
      for (let size = 1024 * 1024; size >= 512; size /= 2) {
        try {
          for (;;) writeFileSync(filler(), Buffer.alloc(size), { flag: 'a' });
        } catch {
          // Full for this size; a smaller write may still fit.
        }
      }
      for (let writes = 0; writes < 5_000; writes++) {
        try {
          write();
        } catch {
          return;
        }
      }
    }

    it('is `resource_exhausted`, and records can still be read', () => {
      const database = openDatabase(join(disk, 'records.db'));
      const projects = projectRecords(database);
      const keys = keyRecords(database);
      const project = projects.create('default');
      const { key, secret } = keys.create({ name: 'k', project: project.id, role: 'admin' });
      let made = 0;
      fill(() => void projects.create(`project-${made++}`));
      expect(() => projects.create('one more')).toThrow(
        expect.objectContaining({ code: 'resource_exhausted' }),
      );
      expect(() => database.transaction(() => projects.create('one more'))).toThrow(
        expect.objectContaining({ code: 'resource_exhausted' }),
      );
      expect(projects.byName('default')).toEqual(project);
      // A key works although its last use cannot be recorded.
      expect(keys.find(secret)).toMatchObject({ id: key.id });
      rmSync(filler());
      expect(projects.create('one more').name).toBe('one more');
      database.close();
    });

    it('delays events and loses none', async () => {
      const errors: unknown[] = [];
      const log = openEventLog(join(disk, 'events.db'), { onError: (error) => errors.push(error) });
      fill(() => {
        log.append({ type: 'filling', data: { text: 'x'.repeat(1000) } });
        if (errors.length > 0) throw errors[0];
      });
      expect(errors).not.toEqual([]);
      const written = log.lastId();
      expect(() => log.append({ type: 'held' })).not.toThrow();
      expect(log.lastId()).toBe(written);
      rmSync(filler());
      log.append({ type: 'last' });
      const types = () => log.list({ after: written }).map(({ type }) => type);
      for (let tries = 0; types().at(-1) !== 'last' && tries < 400; tries++)
        await new Promise((resolve) => setTimeout(resolve, 10));
      // The event that found the disk full is written first.
      expect(types()).toEqual(['filling', 'held', 'last']);
      expect(await log.verify()).toMatchObject({ ok: true });
      log.close();
    });
  },
);

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
  afterEach(() => place.remove());

  /** The backend with some verbs changed. */
  const changed = (changes: Partial<Backend>): Backend =>
    new Proxy(backend, {
      get: (target, name) => (Reflect.get(changes, name) ?? Reflect.get(target, name)) as unknown,
    });

  it('removes a sandbox although the disk is too full to record the intent', async () => {
    const { control, principal, sandboxes, database } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    // The removal itself makes room, so only the record of its intent is refused.
    const { update } = sandboxes;
    sandboxes.update = diskFull;
    await control.remove(principal, sandbox.id);
    sandboxes.update = update;
    expect((await backend.observe(sandbox.id)).phase).toBe('absent');
    expect(database.all('SELECT id FROM sandboxes')).toEqual([]);
    await control.close();
  });

  it('deletes the record of a sandbox that could not be made as soon as there is room', async () => {
    const ensure = async () => diskFull();
    const { control, principal, sandboxes } = await place.open(changed({ ensure }));
    const { delete: remove } = sandboxes;
    sandboxes.delete = diskFull;
    await expect(control.create(principal, asked())).rejects.toMatchObject({ code: 'resource_exhausted' });
    expect(control.list(principal, { limit: 10 }).sandboxes).toHaveLength(1);
    sandboxes.delete = remove;
    for (let tries = 0; control.list(principal, { limit: 10 }).sandboxes.length > 0 && tries < 400; tries++)
      await sleep(10);
    expect(control.list(principal, { limit: 10 }).sandboxes).toEqual([]);
    await control.close();
  });

  it('reports a stop that it cannot record as done, and records it as soon as there is room', async () => {
    const { control, principal, sandboxes } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    const { update } = sandboxes;
    sandboxes.update = diskFull;
    await expect(control.stop(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await backend.observe(sandbox.id)).phase).toBe('stopped');
    sandboxes.update = update;
    for (let tries = 0; control.get(principal, sandbox.id).state !== 'stopped' && tries < 400; tries++)
      await sleep(10);
    expect(control.get(principal, sandbox.id).state).toBe('stopped');
    await control.close();
  });

  it('starts a sandbox that has ended although the disk was too full to record that', async () => {
    const { control, principal, sandboxes } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    const { update } = sandboxes;
    sandboxes.update = diskFull;
    await expect(control.stop(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    sandboxes.update = update;
    expect((await control.start(principal, sandbox.id)).state).toBe('active');
    expect((await backend.observe(sandbox.id)).phase).toBe('ready');
    await control.close();
  });

  it('reports a removal that it cannot record as done, and deletes the record as soon as there is room', async () => {
    const { control, principal, sandboxes } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    const { update, delete: remove } = sandboxes;
    sandboxes.update = sandboxes.delete = diskFull;
    await expect(control.remove(principal, sandbox.id)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await backend.observe(sandbox.id)).phase).toBe('absent');
    Object.assign(sandboxes, { update, delete: remove });
    for (let tries = 0; sandboxes.get(sandbox.id) && tries < 400; tries++) await sleep(10);
    expect(sandboxes.get(sandbox.id)).toBeUndefined();
    await control.close();
  });

  it('stops a sandbox that it cannot record as started', async () => {
    const { control, principal, sandboxes } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    await control.stop(principal, sandbox.id);
    const { update } = sandboxes;
    sandboxes.update = diskFull;
    await expect(control.start(principal, sandbox.id)).rejects.toMatchObject({ code: 'resource_exhausted' });
    sandboxes.update = update;
    expect((await backend.observe(sandbox.id)).phase).toBe('stopped');
    expect(control.get(principal, sandbox.id).state).toBe('stopped');
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
    await expect.poll(() => control.get(principal, other.id).state).toBe('failed');
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
    projects.setQuota(principal.project, QuotaSchema.parse({ cpus: 4 }));
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
    expect(control.get(principal, sandbox.id).state).toBe('destroying');
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
      shorten() {},
      next: () => 0,
      due() {
        if (++reads > 1) resolve();
        else throw new Error('unreadable');
        return [];
      },
      now: () => 0,
      onError: (error) => errors.push(error),
    });
    expiry.start(async () => {});
    await promise;
    expiry.stop();
    expect(errors).toHaveLength(1);
  });
});
