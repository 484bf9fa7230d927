import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type TestControl,
} from '../../testing/test-control.ts';
import { openBuilds, type BuildsOptions } from './builds.ts';
import type { Builds, Recipe } from './build.ts';

const directory = mkdtempSync(join(tmpdir(), 'cay-builds-'));
let machine: Installation;
let opened: { test: TestControl; builds: Builds } | undefined;

/** Stands for `bash -l -c`: the line says what to do. */
const shell = ({ argv, signal }: { argv: readonly string[]; signal: AbortSignal }) => {
  const line = argv.at(-1);
  if (line === 'fail') return 7;
  if (line === 'hang')
    return new Promise<number>((resolve) =>
      signal.addEventListener('abort', () => resolve(137), { once: true }),
    );
  return 0;
};

async function open(
  backend = memoryBackend({ commands: { bash: shell, true: () => 0 } }),
  options: Partial<BuildsOptions> = {},
) {
  const test = await machine.open(backend);
  const builds = await openBuilds({
    now: () => test.clock.nowMs,
    control: test.control,
    records: test.records,
    directory,
    onError: (error) => test.errors.push(error),
    ...options,
  });
  opened = { test, builds };
  return { ...opened, backend };
}

async function build(
  { test, builds }: { test: TestControl; builds: Builds },
  recipe: Partial<Recipe>,
  template = 'mine',
) {
  const { id } = await builds.request(test.principal, { template, names: [template] });
  await builds.start(test.principal, id, { from: 'base', steps: [], ...recipe });
  return id;
}

const sandboxes = async ({ control, principal }: TestControl) =>
  (await control.list(principal, { limit: 100 })).sandboxes;

describe('builds of templates', () => {
  machine = installation();
  afterEach(async () => {
    await opened?.builds.close();
    await opened?.test.control.close();
    opened = undefined;
    machine.remove();
    rmSync(directory, { recursive: true, force: true });
    machine = installation();
  });

  it('make templates, and leave nothing else', async () => {
    const world = await open();
    const { test, builds } = world;
    const { control, principal } = test;
    const id = await build(world, {
      steps: [
        { type: 'write', path: '/etc/note', content: Buffer.from('made'), mode: 0o644 },
        { type: 'env', variables: [['WORD', 'kept']] },
      ],
    });
    expect(await builds.finished(principal, id)).toMatchObject({
      state: 'ready',
      template: 'mine',
      failure: null,
    });
    expect(await sandboxes(test)).toEqual([]);
    expect((await control.snapshots(principal, { limit: 100 })).snapshots).toHaveLength(1);
    const { sandbox } = await control.create(principal, asked({ template: 'mine' }));
    const { guest, row } = await control.enter(principal, sandbox.id);
    expect(row.spec.env).toEqual({ WORD: 'kept' });
    const { data } = await guest.files('root').read('/etc/note');
    expect(Buffer.concat(await Array.fromAsync(data)).toString()).toBe('made');

    // A snapshot without a template is removed, unless a sandbox needs it.
    const second = await builds.finished(principal, await build(world, {}));
    expect((await control.snapshots(principal, { limit: 100 })).snapshots).toHaveLength(2);
    await control.remove(principal, sandbox.id);
    const third = await builds.finished(principal, await build(world, {}));
    expect(
      (await control.snapshots(principal, { limit: 100 })).snapshots.map((snapshot) => snapshot.id),
    ).toEqual([third.snapshot]);
    expect((await builds.of(principal, third.snapshot!))?.id).toBe(third.id);
    expect(second.snapshot).not.toBe(third.snapshot);
    expect(test.errors).toEqual([]);
  });

  it('remove cached steps where the quota of snapshots has no room', async () => {
    const world = await open();
    const { test, builds } = world;
    await test.control.projects.update({ ...test.principal, role: 'admin' }, test.principal.project, {
      quota: { snapshots: 2 },
    });
    const steps = ['one', 'two', 'three'].map((command) => ({ type: 'run' as const, command }));
    const built = await builds.finished(test.principal, await build(world, { steps, caching: 'use' }));
    expect(built.state).toBe('ready');
    const { snapshots } = await test.control.snapshots(test.principal, { limit: 100 });
    expect(snapshots.map(({ id }) => id)).toContain(built.snapshot);
    expect(snapshots.length).toBeLessThanOrEqual(2);
  });

  it('fail with the error of the step, and leave nothing', async () => {
    const world = await open();
    const { test, builds } = world;
    const id = await build(world, {
      steps: [
        { type: 'run', command: 'fine' },
        { type: 'run', command: 'fail' },
      ],
    });
    await expect(builds.finished(test.principal, id)).rejects.toThrow('Cannot run "fail": exit code 7');
    expect(await builds.get(test.principal, id)).toMatchObject({
      state: 'failed',
      failure: { step: 2, steps: 2, command: 'fail', exitCode: 7 },
    });
    expect((await builds.log(test.principal, id, { offset: 0, limit: 100 })).at(-1)).toMatchObject({
      level: 'error',
    });
    const absent = await build(world, { from: 'nowhere' });
    await expect(builds.finished(test.principal, absent)).rejects.toThrow(/Cannot build from "nowhere"/);
    expect((await builds.get(test.principal, absent)).failure).toMatchObject({ step: 0 });
    const brought = await build(world, {
      steps: [{ type: 'copy', files: 'a'.repeat(64), source: 'x', target: 'y' }],
    });
    await expect(builds.finished(test.principal, brought)).rejects.toThrow(/were not uploaded/);
    expect(await sandboxes(test)).toEqual([]);
    expect((await test.control.snapshots(test.principal, { limit: 100 })).snapshots).toEqual([]);
    expect((await test.control.templates(test.principal)).map(({ name }) => name)).toEqual(['base']);
  });

  it('are failed by the next server when one was killed, and their sandboxes removed', async () => {
    const world = await open();
    const { test, builds, backend } = world;
    const waiting = await builds.request(test.principal, { template: 'later', names: ['later'] });
    const id = await build(world, { steps: [{ type: 'run', command: 'hang' }] });
    await expect.poll(async () => (await sandboxes(test)).map(({ state }) => state)).toEqual(['active']);
    await test.kill();
    const next = await open(backend);
    expect(await next.builds.get(next.test.principal, id)).toMatchObject({
      state: 'failed',
      failure: { message: expect.stringContaining('server was stopped') as string },
    });
    expect(await sandboxes(next.test)).toEqual([]);
    // A build that was waiting can still be started.
    await next.builds.start(next.test.principal, waiting.id, { from: 'base', steps: [] });
    expect(await next.builds.finished(next.test.principal, waiting.id)).toMatchObject({ state: 'ready' });
    await expect(
      next.builds.start(next.test.principal, waiting.id, { from: 'base', steps: [] }),
    ).rejects.toThrow(/Cannot start build/);
  });

  it('end with the server, and when they take too long', async () => {
    const world = await open(undefined, { timeoutMs: 200 });
    const { test, builds } = world;
    const slow = await build(world, { steps: [{ type: 'run', command: 'hang' }] });
    await expect(builds.finished(test.principal, slow)).rejects.toThrow(/took longer than/);
    const cut = await build(world, { steps: [{ type: 'run', command: 'hang' }] });
    await expect.poll(async () => (await sandboxes(test)).length).toBe(1);
    await builds.close();
    expect(await builds.get(test.principal, cut)).toMatchObject({ state: 'failed' });
    expect(await sandboxes(test)).toEqual([]);
  });

  it('are visible to their own project only, and bounded in number', async () => {
    const { test, builds } = await open();
    const { id } = await builds.request(test.principal, { template: 'mine', names: ['mine'] });
    const stranger = { project: (await test.projects.create('other')).id, key: null, role: 'admin' as const };
    await expect(builds.get(stranger, id)).rejects.toThrow(/does not exist/);
    await expect(builds.log(stranger, id, { offset: 0, limit: 1 })).rejects.toThrow(/does not exist/);
    await expect(builds.start(stranger, id, { from: 'base', steps: [] })).rejects.toThrow(/does not exist/);
    await expect(builds.request(test.principal, { template: 'base', names: ['base'] })).rejects.toThrow(
      /comes with/,
    );
    for (let count = 1; count < 50; count++)
      await builds.request(test.principal, { template: 'mine', names: ['mine'] });
    await expect(builds.request(test.principal, { template: 'mine', names: ['mine'] })).rejects.toThrow(
      /under way/,
    );
    await builds.request(stranger, { template: 'mine', names: ['mine'] });
    // Builds that were never started are deleted after a day.
    test.clock.nowMs += 25 * 3600_000;
    const later = await openBuilds({
      control: test.control,
      records: test.records,
      directory,
      now: () => test.clock.nowMs,
    });
    await later.request(test.principal, { template: 'mine', names: ['mine'] });
  });
});
