import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SandboxSpecSchema, newId, type SandboxId } from '@cay/sdk/protocol';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';

let place: Installation;
let memory: MemoryBackend;
let opened: TestControl;
beforeEach(async () => {
  place = installation();
  memory = memoryBackend();
  // The backend reports no changes: only the comparison finds them.
  const deaf = new Proxy(memory, {
    get: (target, name) => (name === 'watch' ? silent : (Reflect.get(target, name) as unknown)),
  });
  opened = await place.open(deaf, { reconcileMs: 20 });
});
afterEach(async () => {
  await opened.control.close();
  expect(opened.errors).toEqual([]);
  place.remove();
});

// oxlint-disable-next-line require-yield -- no change is ever reported
async function* silent({ signal }: { signal?: AbortSignal } = {}) {
  await new Promise((resolve) => signal?.addEventListener('abort', resolve, { once: true }));
}

const create = async () => (await opened.control.create(opened.principal, asked())).sandbox.id;
const state = async (id: SandboxId) => (await opened.control.get(opened.principal, id)).state;

describe('the comparison of records with the backend', () => {
  it('records sandboxes that ended, were paused or were removed outside the server', async () => {
    const [stopped, frozen, gone, fine] = [await create(), await create(), await create(), await create()];
    await memory.stop(stopped);
    await memory.freeze(frozen);
    await memory.remove(gone);
    await expect
      .poll(() => Promise.all([stopped, frozen, gone].map(state)))
      .toEqual(['stopped', 'paused', 'failed']);
    expect((await opened.control.get(opened.principal, gone)).reason).toBe('removed_outside');
    expect(await state(fine)).toBe('active');
  });

  it('records a sandbox that was started outside the server', async () => {
    const id = await create();
    await opened.control.stop(opened.principal, id);
    await memory.ensure(id, (await opened.sandboxes.get(id))!.spec);
    await expect.poll(() => state(id)).toBe('active');
  });

  it('removes sandboxes without a record, and leaves those alone that are being made', async () => {
    const stray = newId('sbx');
    await memory.ensure(stray, SandboxSpecSchema.parse({}));
    const made = await Promise.all(Array.from({ length: 20 }, create));
    await expect.poll(async () => (await memory.observe(stray)).phase).toBe('absent');
    expect(await Promise.all(made.map(state))).toEqual(made.map(() => 'active'));
  });

  it('finds snapshots that are missing or without a record', async () => {
    const id = await create();
    const snapshot = await opened.control.snapshot(opened.principal, id, { name: 'one' });
    const kept = await opened.control.snapshot(opened.principal, id, { name: 'two' });
    const stray = newId('snap');
    await memory.snapshot(id, stray);
    await memory.removeSnapshot(snapshot.id);
    await expect
      .poll(async () => (await opened.events.list({})).some(({ type }) => type === 'snapshot.lost'))
      .toBe(true);
    await expect.poll(async () => (await memory.snapshots()).map((one) => one.id)).toEqual([kept.id]);
    expect(
      (await opened.control.snapshots(opened.principal, { limit: 10 })).snapshots.map((one) => one.id),
    ).toEqual([kept.id]);
  });
});
