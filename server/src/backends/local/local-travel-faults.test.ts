/**
 * Each verb that changes a sandbox or a snapshot, failing and being killed between any two of its steps:
 * afterwards everything is as before or as after, and nothing is left behind.
 */
import { newId, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { whyLater } from '../../../../test/support/tier.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { IMPORT_FAULTS } from './archive.ts';
import { CLONE_FAULTS, CLONE_START_FAULTS } from './clone.ts';
import { END_FAULTS } from './end-instance.ts';
import { FREEZE_FAULTS } from './freeze.ts';
import { HIBERNATE_FAULTS } from './hibernate.ts';
import type { LocalBackend } from './local.ts';
import { REMOVE_SNAPSHOT_FAULTS } from './remove-snapshot.ts';
import { ROLLBACK_FAULTS } from './rollback.ts';
import { SNAPSHOT_FAULTS } from './snapshot.ts';
import { START_FAULTS } from './start.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';
import { WAKE_FAULTS } from './wake.ts';

interface Stage {
  world: LocalWorld;
  backend: LocalBackend;
  /** Runs, with the note `now` and a command. The snapshot has the note `then`. */
  id: SandboxId;
  snapshot: SnapshotId;
  /** What the verb is about to make. */
  child: SandboxId;
  taken: SnapshotId;
  incarnation: number;
}

interface Scene {
  verb: string;
  faults: readonly string[];
  /** Whether the snapshot has processes. */
  memory?: boolean;
  before?(stage: Stage): Promise<unknown>;
  act(stage: Stage): Promise<unknown>;
  /** Looks at what there is, after the failure or the next server's start. Runs with nothing armed. */
  check(stage: Stage): Promise<void>;
}

const reason = whyNoLocal();
const STEP_MS = 30_000;
/** Steps that no caller waits for: what is left when one fails is found by the next sweep. */
const IN_BACKGROUND = ['local.rollback.switched', 'local.wake.done'];

const files: Scene[] = [
  {
    verb: 'snapshot() of what runs',
    faults: SNAPSHOT_FAULTS,
    act: ({ backend, id, taken }) => backend.snapshot(id, taken),
    check: wholeOrAbsent,
  },
  {
    verb: 'snapshot() of what is stopped',
    faults: SNAPSHOT_FAULTS,
    before: ({ backend, id }) => backend.stop(id, { graceMs: 0 }),
    act: ({ backend, id, taken }) => backend.snapshot(id, taken),
    async check(stage) {
      expect((await stage.backend.observe(stage.id)).phase).toBe('stopped');
      await stage.backend.ensure(stage.id, stage.world.spec);
      await stage.backend.removeSnapshot(stage.taken);
    },
  },
  {
    verb: 'clone()',
    faults: CLONE_FAULTS,
    act: ({ backend, world, child, snapshot }) => backend.clone(child, world.spec, snapshot),
    async check({ backend, world, child, snapshot }) {
      expect(['absent', 'stopped']).toContain((await backend.observe(child)).phase);
      await backend.clone(child, world.spec, snapshot);
      await backend.ensure(child, world.spec);
      expect(await world.readNote(backend, child)).toBe('then');
      await backend.remove(child);
    },
  },
  {
    verb: 'clone() that starts',
    faults: CLONE_START_FAULTS,
    act: ({ backend, world, child, snapshot }) => backend.clone(child, world.spec, snapshot, { start: true }),
    async check({ backend, world, child, snapshot }) {
      expect(['absent', 'ready']).toContain((await backend.observe(child)).phase);
      expect(await backend.clone(child, world.spec, snapshot, { start: true })).toMatchObject({
        phase: 'ready',
        incarnation: 1,
      });
      expect(await world.readNote(backend, child)).toBe('then');
      await backend.remove(child);
    },
  },
  {
    verb: 'rollback() of what runs',
    faults: ROLLBACK_FAULTS,
    act: ({ backend, id, snapshot }) => backend.rollback(id, snapshot),
    check: beforeOrBack,
  },
  {
    verb: 'rollback() of what is frozen',
    faults: ROLLBACK_FAULTS,
    before: ({ backend, id }) => backend.freeze(id),
    act: ({ backend, id, snapshot }) => backend.rollback(id, snapshot),
    async check(stage) {
      const { frozen, incarnation } = await stage.backend.observe(stage.id);
      expect({ frozen, incarnation }).toEqual(
        incarnation === stage.incarnation
          ? { frozen: true, incarnation }
          : { frozen: undefined, incarnation: stage.incarnation + 1 },
      );
      await stage.backend.ensure(stage.id, stage.world.spec);
      await beforeOrBack(stage);
    },
  },
  {
    verb: 'rollback() of what is stopped',
    faults: ROLLBACK_FAULTS,
    before: ({ backend, id }) => backend.stop(id, { graceMs: 0 }),
    act: ({ backend, id, snapshot }) => backend.rollback(id, snapshot),
    async check({ backend, world, id }) {
      expect((await backend.observe(id)).phase).toBe('stopped');
      await backend.ensure(id, world.spec);
      expect(['now', 'then']).toContain(await world.readNote(backend, id));
    },
  },
  {
    verb: 'removeSnapshot()',
    faults: REMOVE_SNAPSHOT_FAULTS,
    before: ({ backend, id, taken }) => backend.snapshot(id, taken),
    act: ({ backend, taken }) => backend.removeSnapshot(taken),
    async check({ backend, taken }) {
      await backend.removeSnapshot(taken);
      expect((await backend.snapshots()).map(({ id }) => id)).not.toContain(taken);
    },
  },
  {
    verb: 'ensure() of what is absent',
    faults: START_FAULTS,
    act: ({ backend, world, child }) => backend.ensure(child, world.spec),
    async check({ backend, world, child }) {
      expect(['absent', 'ready']).toContain((await backend.observe(child)).phase);
      expect((await backend.ensure(child, world.spec)).phase).toBe('ready');
      await backend.remove(child);
    },
  },
  {
    verb: 'ensure() of what is stopped',
    faults: START_FAULTS,
    before: ({ backend, id }) => backend.stop(id, { graceMs: 0 }),
    act: ({ backend, world, id }) => backend.ensure(id, world.spec),
    async check({ backend, world, id }) {
      // A start that failed has a reason; a start that never began leaves it as it was.
      expect(['stopped', 'failed', 'ready']).toContain((await backend.observe(id)).phase);
      await backend.ensure(id, world.spec);
      expect(await world.readNote(backend, id)).toBe('now');
    },
  },
  {
    verb: 'stop() and remove()',
    faults: END_FAULTS,
    async before({ backend, world, child, snapshot }) {
      await backend.clone(child, world.spec, snapshot);
      await backend.ensure(child, world.spec);
    },
    async act({ backend, child }) {
      await backend.stop(child, { graceMs: 0 });
      await backend.remove(child);
    },
    async check({ backend, child }) {
      expect(['absent', 'ready', 'stopped']).toContain((await backend.observe(child)).phase);
      await backend.remove(child);
      expect((await backend.observe(child)).phase).toBe('absent');
    },
  },
  {
    verb: 'freeze() and thaw()',
    faults: FREEZE_FAULTS,
    async act({ backend, id }) {
      await backend.freeze(id);
      await backend.thaw(id);
    },
    async check({ backend, world, id, incarnation }) {
      const { frozen } = await backend.observe(id);
      expect(await world.freezerState(id)).toBe(frozen ? 'frozen' : 'thawed');
      await backend.thaw(id);
      expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation });
    },
  },
];

const memory: Scene[] = [
  {
    verb: 'importSnapshot()',
    memory: true,
    faults: IMPORT_FAULTS,
    act: ({ backend, snapshot, taken }) =>
      backend.importSnapshot(taken, backend.exportSnapshot(snapshot), { foreignMemory: true }),
    async check({ backend, world, child, taken }) {
      if ((await backend.snapshots()).some(({ id }) => id === taken)) {
        await backend.clone(child, world.spec, taken, { memory: true });
        await backend.ensure(child, world.spec);
        expect(await world.readNote(backend, child)).toBe('then');
        await backend.remove(child);
      }
      await backend.removeSnapshot(taken);
    },
  },
  {
    verb: 'snapshot() with memory',
    faults: SNAPSHOT_FAULTS,
    act: ({ backend, id, taken }) => backend.snapshot(id, taken, { memory: true }),
    check: wholeOrAbsent,
  },
  {
    verb: 'hibernate()',
    faults: HIBERNATE_FAULTS,
    act: ({ backend, id }) => backend.hibernate(id),
    check: runsOrWakes,
  },
  {
    verb: 'ensure() of what is hibernated',
    faults: WAKE_FAULTS,
    before: ({ backend, id }) => backend.hibernate(id),
    act: ({ backend, world, id }) => backend.ensure(id, world.spec),
    check: runsOrWakes,
  },
  {
    verb: 'ensure() of a clone with memory',
    memory: true,
    faults: WAKE_FAULTS,
    before: ({ backend, world, child, snapshot }) =>
      backend.clone(child, world.spec, snapshot, { memory: true }),
    act: ({ backend, world, child }) => backend.ensure(child, world.spec),
    async check(stage) {
      await runsOrWakes({ ...stage, id: stage.child }, 'then');
      await stage.backend.remove(stage.child);
    },
  },
  {
    verb: 'clone() with memory that starts',
    memory: true,
    faults: CLONE_START_FAULTS,
    act: ({ backend, world, child, snapshot }) =>
      backend.clone(child, world.spec, snapshot, { memory: true, start: true }),
    async check(stage) {
      const { backend, world, child, snapshot } = stage;
      expect(['absent', 'ready']).toContain((await backend.observe(child)).phase);
      await backend.clone(child, world.spec, snapshot, { memory: true, start: true });
      await runsOrWakes({ ...stage, id: child }, 'then');
      await backend.remove(child);
    },
  },
  {
    verb: 'rollback() with memory',
    memory: true,
    faults: ROLLBACK_FAULTS,
    act: ({ backend, id, snapshot }) => backend.rollback(id, snapshot, { memory: true }),
    async check(stage) {
      await beforeOrBack(stage);
      // In both cases the command is there: it ran when the snapshot was taken, too.
      expect(await running(stage)).toEqual(['work']);
    },
  },
];

scenes('runc', files);
scenes('runsc', memory);

function scenes(runtime: string, list: Scene[]): void {
  describe.skipIf(reason !== undefined)(
    `faults of time travel on ${runtime}${reason ? ` (skipped: ${reason})` : ''}`,
    () => {
      let world: LocalWorld;
      let backend: LocalBackend;
      let id: SandboxId;

      beforeAll(async () => {
        // With a disk of a size that no tree is kept ready for: a server that was killed would not take those
        // away either.
        world = await localWorld({ runtime, limits: { diskBytes: 1024 ** 3 } });
        backend = await world.open();
        id = await world.box(backend);
      }, STEP_MS);
      afterEach(() => armFaultPoints());
      afterAll(() => world?.destroy(), STEP_MS);

      async function setUp(scene: Scene): Promise<Stage> {
        await backend.ensure(id, world.spec);
        await world.note(backend, id, 'then');
        const guest = await backend.connect(id);
        if (!(await guest.commands()).some((command) => command.id === 'work' && !command.end)) {
          const handle = await guest.exec({
            id: 'work',
            argv: ['sleep', '1000'],
            env: {},
            workdir: '/',
            user: 'user',
          });
          await handle[Symbol.asyncDispose]();
        }
        const snapshot = newId('snap');
        await backend.snapshot(id, snapshot, { memory: scene.memory ?? false });
        await world.note(backend, id, 'now');
        const { incarnation } = await backend.observe(id);
        const stage = {
          world,
          backend,
          id,
          snapshot,
          child: newId('sbx'),
          taken: newId('snap'),
          incarnation,
        };
        await scene.before?.(stage);
        return stage;
      }

      async function tearDown(stage: Stage, fault: string): Promise<void> {
        // The tree of the sandbox may depend on the snapshot now, and then no other does.
        const standing = await stage.backend.removeSnapshot(stage.snapshot).then(
          () => [],
          (error: { details?: { sandboxes?: string[] } }) => error.details?.sandboxes,
        );
        expect(standing === undefined ? 'an error' : standing.filter((one) => one !== id)).toEqual([]);
        const left = await stage.backend.sweep();
        if (!IN_BACKGROUND.includes(fault)) expect(left).toEqual([]);
        expect(await stage.backend.sweep({ dryRun: true })).toEqual([]);
        expect(await world.instances()).toHaveLength(1);
        if (standing?.length === 0) return;
        await stage.backend.remove(id);
        await stage.backend.removeSnapshot(stage.snapshot);
        expect(await world.images()).toEqual([]);
        id = await world.box(backend);
      }

      for (const scene of list) {
        it.skipIf(whyLater() !== undefined).each(scene.faults)(
          `${scene.verb} that fails at %s is as before or as after`,
          async (fault) => {
            const stage = await setUp(scene);
            armFaultPoints({ [fault]: 'error' });
            await scene.act(stage).catch(() => {});
            armFaultPoints();
            await scene.check(stage);
            await tearDown(stage, fault);
          },
          STEP_MS,
        );

        it.each(scene.faults)(
          `${scene.verb} of a server that is killed at %s is as before or as after`,
          async (fault) => {
            const stage = await setUp(scene);
            const struck = Promise.withResolvers<void>();
            armFaultPoints({ [fault]: () => (struck.resolve(), new Promise(() => {})) });
            await Promise.race([struck.promise, scene.act(stage)]);
            await world.abandon(backend);
            armFaultPoints();
            backend = await world.open();
            await scene.check({ ...stage, backend });
            await tearDown({ ...stage, backend }, fault);
          },
          STEP_MS,
        );
      }
    },
  );
}

async function running({ backend, id }: Stage): Promise<string[]> {
  const commands = await (await backend.connect(id)).commands();
  return commands.filter(({ end, id: command }) => !end && command === 'work').map((command) => command.id);
}

/** The sandbox goes on, and the snapshot is whole or was never there. */
async function wholeOrAbsent(stage: Stage): Promise<void> {
  const { backend, world, id, taken, incarnation } = stage;
  expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation });
  expect(await running(stage)).toEqual(['work']);
  const facts = await backend.snapshots();
  if (facts.some((one) => one.id === taken)) {
    await backend.clone(stage.child, world.spec, taken);
    await backend.ensure(stage.child, world.spec);
    expect(await world.readNote(backend, stage.child)).toBe('now');
    await backend.remove(stage.child);
  }
  await backend.removeSnapshot(taken);
}

async function beforeOrBack(stage: Stage): Promise<void> {
  const { backend, world, id, incarnation } = stage;
  const observed = await backend.observe(id);
  expect(observed.phase).toBe('ready');
  const note = await world.readNote(backend, id);
  expect({ note, incarnation: observed.incarnation }).toEqual(
    observed.incarnation === incarnation
      ? { note: 'now', incarnation }
      : { note: 'then', incarnation: incarnation + 1 },
  );
  if (note === 'now') expect(await running(stage)).toEqual(['work']);
}

async function runsOrWakes(stage: Stage, note = 'now'): Promise<void> {
  const { backend, world, id } = stage;
  expect(['ready', 'hibernated']).toContain((await backend.observe(id)).phase);
  await backend.ensure(id, world.spec);
  expect(await running(stage)).toEqual(['work']);
  expect(await world.readNote(backend, id)).toBe(note);
}
