/**
 * The control plane is killed, or a step fails, at every fault point. Afterwards each sandbox is as before or
 * as after the operation, and nothing is left over.
 */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { CayError, ListSnapshotsSchema } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { hibernatingBackend } from '../testing/hibernating-backend.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type TestControl,
} from '../testing/test-control.ts';
import { readText, writeText } from '../testing/text-file.ts';

interface Scenario {
  points: string[];
  /** Before the operation: the sandbox "box" has a file with "one" in turn 1, and "two" now. */
  prepare?(test: TestControl): Promise<unknown>;
  operation(test: TestControl): Promise<unknown>;
  /** The possible texts of the file afterwards. */
  texts: string[];
  /** The possible numbers of sandboxes. */
  sandboxes?: number[];
}

const SCENARIOS: Record<string, Scenario> = {
  snapshot: {
    points: ['control.snapshot.recorded', 'control.snapshot.taken'],
    operation: ({ control, principal }) => control.snapshot(principal, 'box', { name: 'mine' }),
    texts: ['two'],
  },
  turn: {
    points: ['control.snapshot.recorded', 'control.snapshot.taken'],
    operation: ({ control, principal }) => control.turn(principal, 'box', {}),
    texts: ['two'],
  },
  comparison: {
    points: [
      'control.snapshot.recorded',
      'control.snapshot.taken',
      'control.remove_snapshot.recorded',
      'control.remove_snapshot.done',
    ],
    operation: async ({ control, principal }) =>
      (await control.compare(principal, 'box', { from: 1, to: 'now' })).release(),
    texts: ['two'],
  },
  'removal of a snapshot': {
    points: ['control.remove_snapshot.recorded', 'control.remove_snapshot.done'],
    prepare: ({ control, principal }) => control.snapshot(principal, 'box', { name: 'unwanted' }),
    operation: ({ control, principal }) => control.removeSnapshot(principal, 'unwanted', { sandbox: 'box' }),
    texts: ['two'],
  },
  'removal of a snapshot that a sandbox stands on': {
    points: ['control.remove_snapshot.recorded'],
    async prepare({ control, principal }) {
      const { id: snapshot } = await control.snapshot(principal, 'box', { name: 'unwanted' });
      await control.create(principal, asked({ snapshot }));
    },
    operation: ({ control, principal }) => control.removeSnapshot(principal, 'unwanted', { sandbox: 'box' }),
    texts: ['two'],
    sandboxes: [2],
  },
  import: {
    points: ['control.import.recorded', 'control.import.taken'],
    async operation({ control, principal }) {
      const { data } = await control.exportSnapshot(principal, 1, { sandbox: 'box' });
      await control.importSnapshot(principal, data, { name: 'other' });
    },
    texts: ['two'],
  },
  rollback: {
    points: [
      'control.snapshot.recorded',
      'control.snapshot.taken',
      'control.rollback.recorded',
      'control.rollback.done',
    ],
    operation: ({ control, principal }) => control.rollback(principal, 'box', { to: 1 }),
    texts: ['one', 'two'],
  },
  'rollback of a stopped sandbox': {
    points: ['control.rollback.recorded', 'control.rollback.done'],
    prepare: ({ control, principal }) => control.stop(principal, 'box'),
    operation: ({ control, principal }) => control.rollback(principal, 'box', { to: 1 }),
    texts: ['one', 'two'],
  },
  resize: {
    points: ['control.resize.recorded', 'control.resize.done'],
    operation: ({ control, principal }) => control.update(principal, 'box', { limits: { pids: 77 } }),
    texts: ['two'],
  },
  fork: {
    points: [
      'control.snapshot.taken',
      'control.fork.captured',
      'control.fork.recorded',
      'control.clone.done',
      'control.fork.made',
    ],
    operation: ({ control, principal }) => control.fork(principal, 'box', { count: 3 }),
    texts: ['two'],
    sandboxes: [1],
  },
  'fork that can be repeated': {
    points: ['control.fork.captured', 'control.fork.recorded', 'control.clone.done', 'control.fork.made'],
    operation: ({ control, principal }) =>
      control.fork(principal, 'box', { count: 3, namePrefix: 'child' }, { idempotencyKey: 'k' }),
    texts: ['two'],
    sandboxes: [1, 4],
  },
  'creation from a snapshot': {
    points: ['control.clone.done'],
    operation: async ({ control, principal }) =>
      control.create(
        principal,
        asked({
          name: 'child',
          getOrCreate: true,
          snapshot: (await control.getSnapshot(principal, 1, { sandbox: 'box' })).id,
        }),
      ),
    texts: ['two'],
    sandboxes: [1, 2],
  },
  freezing: {
    points: ['control.pause.begun', 'control.pause.done'],
    operation: ({ control, principal }) => control.pause(principal, 'box', { as: 'frozen' }),
    texts: ['two'],
  },
  hibernation: {
    points: ['control.pause.begun', 'control.pause.done'],
    operation: ({ control, principal }) => control.pause(principal, 'box', { as: 'hibernated' }),
    texts: ['two'],
  },
  archiving: {
    points: [
      'control.pause.begun',
      'control.pause.done',
      'control.snapshot.recorded',
      'control.snapshot.taken',
      'control.archive.putting',
      'control.archive.stored',
      'control.archive.recorded',
      'control.archive.removed',
    ],
    operation: ({ control, principal }) => control.pause(principal, 'box', { as: 'archived' }),
    texts: ['two'],
  },
  'waking of a frozen sandbox': {
    points: ['control.wake.begun', 'control.wake.done'],
    prepare: ({ control, principal }) => control.pause(principal, 'box', { as: 'frozen' }),
    operation: ({ control, principal }) => control.resume(principal, 'box'),
    texts: ['two'],
  },
  'waking of a hibernated sandbox': {
    points: ['control.wake.begun', 'control.wake.done'],
    prepare: ({ control, principal }) => control.pause(principal, 'box', { as: 'hibernated' }),
    operation: ({ control, principal }) => control.resume(principal, 'box'),
    texts: ['two'],
  },
  'waking of an archived sandbox': {
    points: ['control.wake.begun', 'control.fetch.done', 'control.restore.fetched', 'control.restore.cloned'],
    prepare: ({ control, principal }) => control.pause(principal, 'box', { as: 'archived' }),
    operation: ({ control, principal }) => control.resume(principal, 'box'),
    texts: ['two'],
  },
};

let place: Installation;
let backend: ReturnType<typeof hibernatingBackend>;
beforeEach(() => {
  place = installation();
  backend = hibernatingBackend(memoryBackend());
});
afterEach(() => {
  armFaultPoints();
  place.remove();
});

const write = (test: TestControl, text: string) => writeText(test, 'box', text);
async function read(test: TestControl): Promise<string> {
  const { control, principal } = test;
  if ((await control.get(principal, 'box')).state === 'stopped') await control.start(principal, 'box');
  return readText(test, 'box');
}

async function prepared({ prepare }: Scenario): Promise<TestControl> {
  const test = await place.open(backend);
  await test.control.create(test.principal, asked({ name: 'box' }));
  await write(test, 'one');
  await test.control.turn(test.principal, 'box', {});
  await write(test, 'two');
  await prepare?.(test);
  return test;
}

/** Records, backend and archive store agree: nothing is missing and nothing is left over. */
async function agree({ control, principal, sql }: TestControl): Promise<Record<string, [unknown, unknown]>> {
  const rows = (await control.list(principal, { limit: 100 })).sandboxes;
  const snapshots = (await control.snapshots(principal, ListSnapshotsSchema.parse({ limit: 1000 })))
    .snapshots;
  const sorted = (values: Iterable<string>) => [...values].toSorted();
  return {
    sandboxes: [
      sorted(rows.filter(({ pausedAs }) => pausedAs !== 'archived').map(({ id }) => id)),
      sorted((await backend.list()).map(({ id }) => id)),
    ],
    snapshots: [
      sorted(snapshots.filter(({ archived }) => !archived).map(({ id }) => id)),
      sorted((await backend.snapshots()).map(({ id }) => id)),
    ],
    archives: [
      sorted(
        sql<{ object: string }>('SELECT object FROM snapshots WHERE object IS NOT NULL').map(
          ({ object }) => object,
        ),
      ),
      sorted(place.archived()),
    ],
    undone: [
      sql('SELECT id FROM snapshots WHERE state <> ?', 'kept').length +
        sql('SELECT id FROM sandboxes WHERE deed IS NOT NULL').length,
      0,
    ],
    creating: [rows.filter(({ state }) => state === 'creating' || state === 'destroying').length, 0],
    unmade: [sql('SELECT id FROM forks WHERE made = 0').length, 0],
  };
}

const disagreements = async (test: TestControl) =>
  Object.entries(await agree(test)).filter(
    ([, [one, other]]) => JSON.stringify(one) !== JSON.stringify(other),
  );

async function whole(test: TestControl, { texts, sandboxes = [1] }: Scenario): Promise<void> {
  await expect.poll(() => disagreements(test)).toEqual([]);
  expect(sandboxes).toContain((await test.control.list(test.principal, { limit: 100 })).sandboxes.length);
  expect(texts).toContain(await read(test));
}

const cases = Object.entries(SCENARIOS).flatMap(([name, scenario]) =>
  scenario.points.map((point) => ({ name, point, scenario })),
);

describe('a control plane that is killed', () => {
  it.each(cases)('during a $name at $point finishes or undoes it', async ({ point, scenario }) => {
    const first = await prepared(scenario);
    const reached = Promise.withResolvers<void>();
    armFaultPoints({
      [point]: () => {
        reached.resolve();
        return new Promise(() => {});
      },
    });
    void scenario.operation(first).catch(reached.reject);
    await reached.promise;
    await first.kill();
    armFaultPoints();
    const second = await place.open(backend);
    await whole(second, scenario);
    await scenario.prepare?.(second).catch(() => {});
    await scenario
      .operation(second)
      .catch((error: unknown) =>
        expect((error as { code: string }).code).toMatch(/^(not_found|failed_precondition)$/),
      );
    expect(second.errors).toEqual([]);
    await second.control.close();
  });
});

/** The backend as one process reaches it: once that process is killed, its calls do nothing. */
function mortal(inner: typeof backend): { backend: typeof backend; die(): void } {
  let dead = false;
  const reached = new Proxy(inner, {
    get(target, name) {
      const value = Reflect.get(target, name) as unknown;
      if (typeof value !== 'function' || name === 'ability') return value;
      return (...given: unknown[]) =>
        dead ? new Promise(() => {}) : (value.apply(target, given) as unknown);
    },
  });
  return { backend: reached, die: () => void (dead = true) };
}

describe('a control plane that is killed again and again during random operations', () => {
  it('loses nothing and leaves nothing over', { timeout: 60_000 }, async () => {
    const step = fc.record({
      name: fc.constantFrom(...Object.keys(SCENARIOS)),
      afterMs: fc.integer({ min: 0, max: 6 }),
    });
    const round = fc.record({
      steps: fc.array(step, { minLength: 1, maxLength: 6 }),
      killedAfterMs: fc.integer({ min: 1, max: 25 }),
    });
    await (await prepared(SCENARIOS['turn']!)).kill();
    const everything: Scenario = {
      points: [],
      operation: async () => {},
      texts: ['one', 'two'],
      sandboxes: [],
    };
    await fc.assert(
      fc.asyncProperty(round, async ({ steps, killedAfterMs }) => {
        const { backend: reached, die } = mortal(backend);
        const first = await place.open(reached);
        armFaultPoints({ 'control.*': 'delay:2@0.7' });
        for (const { name, afterMs } of steps) {
          const { prepare, operation } = SCENARIOS[name]!;
          setTimeout(() => {
            // Operations that are refused, or cut short by the kill, are expected.
            (async () => {
              await prepare?.(first);
              await operation(first);
            })().catch(() => {});
          }, afterMs);
        }
        await new Promise((resolve) => setTimeout(resolve, killedAfterMs));
        die();
        await first.kill();
        armFaultPoints();
        const second = await place.open(backend);
        const { control, principal } = second;
        // Finished children are removed, so that the next round starts as this one did.
        everything.sandboxes = [(await control.list(principal, { limit: 100 })).sandboxes.length];
        await expect.poll(() => disagreements(second)).toEqual([]);
        for (const { id, name } of (await control.list(principal, { limit: 100 })).sandboxes)
          if (name !== 'box') await control.remove(principal, id);
        everything.sandboxes = [1];
        await whole(second, everything);
        expect(second.errors).toEqual([]);
        await second.kill();
      }),
      { numRuns: 40 },
    );
  });
});

describe('a step that fails', () => {
  it.each(cases)('during a $name at $point leaves nothing behind', async ({ point, scenario }) => {
    const test = await prepared(scenario);
    armFaultPoints({ [point]: 'error' });
    const failed = await scenario.operation(test).then(
      () => false,
      (error: unknown) => {
        expect(String(error)).toContain('on purpose');
        return true;
      },
    );
    armFaultPoints();
    if (failed) expect(await read(test)).toBe('two');
    // What could not be removed at once is removed when the server opens again.
    await test.kill();
    const again = await place.open(backend);
    await whole(again, scenario);
    expect(again.errors).toEqual([]);
    await again.control.close();
  });
});

describe('a rollback that was refused', () => {
  it('is not done later, although the disk was too full to delete the intent', async () => {
    const first = await prepared(SCENARIOS['rollback']!);
    const full = () => {
      throw new CayError('resource_exhausted', 'The disk is full');
    };
    const { sandboxes } = first;
    armFaultPoints({
      'control.rollback.recorded': () => {
        sandboxes.update = full;
        full();
      },
    });
    await expect(SCENARIOS['rollback']!.operation(first)).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    armFaultPoints();
    await write(first, 'three');
    await first.kill();
    const second = await place.open(backend);
    await whole(second, { ...SCENARIOS['rollback']!, texts: ['three'] });
    await second.control.close();
  });
});

describe('the fault points', () => {
  it('are all tested', () => {
    const control = join(import.meta.dirname, '..');
    const named = readdirSync(control, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts') && !file.includes('.test.'))
      // Other files have those of tools (`test/e2e/tools.test.ts`), volumes (`volume-faults.test.ts`), moves
      // (`move.test.ts`), buckets (`buckets.test.ts`) and builds (`test/builds/`).
      .filter((file) => !/^(?:tools|volumes|templates|placement|buckets)\//.test(file))
      .flatMap((file) =>
        [...readFileSync(join(control, file), 'utf8').matchAll(/faultPoint\('([^']+)'\)/g)].map(
          (match) => match[1]!,
        ),
      );
    expect([...new Set(cases.map(({ point }) => point))].toSorted()).toEqual([...new Set(named)].toSorted());
  });
});
