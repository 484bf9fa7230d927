/**
 * Each verb that changes a sandbox or a snapshot, failing and being killed between any two of its steps:
 * afterwards everything is as before or as after, and nothing is left behind.
 */
import { isCayError, newId, SandboxSpecSchema, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { drain, gather } from '../../../../test/conformance/box.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../../../../test/support/dockerd.ts';
import { whyLater } from '../../../../test/support/tier.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { dockerClient } from './docker-client.ts';
import { dockerBackend, type DockerBackend } from './docker.ts';
import { CLONE_FAULTS } from './docker-snapshots.ts';
import { ROLLBACK_FAULTS } from './rollback-container.ts';
import { IMPORT_FAULTS } from './snapshot-archives.ts';
import { SNAPSHOT_FAULTS } from './take-snapshot.ts';

const why = whyNoDockerd();
const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null } });
const NOTE = '/home/user/note';

interface Stage {
  backend: DockerBackend;
  id: SandboxId;
  snapshot: SnapshotId;
  taken: SnapshotId;
  child: SandboxId;
}

interface Scene {
  verb: string;
  faults: readonly string[];
  act(stage: Stage): Promise<unknown>;
  /** Looks at what there is, after the failure or the next server's start. */
  check(stage: Stage): Promise<void>;
}

const scenes: Scene[] = [
  {
    verb: 'snapshot()',
    faults: SNAPSHOT_FAULTS,
    act: ({ backend, id, taken }) => backend.snapshot(id, taken),
    async check({ backend, id, taken }) {
      expect(await noteOf(backend, id)).toBe('now');
      if ((await backend.snapshots()).some((each) => each.id === taken))
        expect((await gather(backend.snapshotFiles(taken).read(NOTE))).toString()).toBe('now');
    },
  },
  {
    verb: 'clone() that starts',
    faults: CLONE_FAULTS,
    act: ({ backend, child, snapshot }) => backend.clone(child, spec, snapshot, { start: true }),
    async check({ backend, child, snapshot }) {
      await backend.clone(child, spec, snapshot, { start: true });
      expect(await noteOf(backend, child)).toBe('then');
    },
  },
  {
    verb: 'rollback() of what runs',
    faults: ROLLBACK_FAULTS,
    act: ({ backend, id, snapshot }) => backend.rollback(id, snapshot),
    check: beforeOrBack,
  },
  {
    verb: 'importSnapshot()',
    faults: IMPORT_FAULTS,
    act: ({ backend, snapshot, taken }) => backend.importSnapshot(taken, backend.exportSnapshot(snapshot)),
    async check({ backend, taken }) {
      if ((await backend.snapshots()).some((each) => each.id === taken))
        expect((await gather(backend.snapshotFiles(taken).read(NOTE))).toString()).toBe('then');
    },
  },
];

async function beforeOrBack({ backend, id }: Stage): Promise<void> {
  const { phase, frozen, incarnation } = await backend.observe(id);
  expect({ phase, frozen }).toEqual({ phase: 'ready', frozen: undefined });
  expect(await noteOf(backend, id)).toBe(incarnation === 1 ? 'now' : 'then');
  const guest = await backend.connect(id);
  const work = (await guest.commands()).filter((each) => each.id === 'work' && !each.end);
  expect(work).toHaveLength(incarnation === 1 ? 1 : 0);
}

async function noteOf(backend: DockerBackend, id: SandboxId): Promise<string> {
  const guest = await backend.connect(id);
  return (await gather((await guest.files('user').read(NOTE)).data)).toString();
}

const MAX_CHECKS = 5;

/** Once more while the connection to the guest gets lost. */
async function checkAgain(check: () => Promise<void>): Promise<void> {
  for (let turn = 1; ; turn++) {
    try {
      return await check();
    } catch (error) {
      if (turn === MAX_CHECKS || !isCayError(error, 'unavailable')) throw error;
    }
  }
}

describe.skipIf(why !== undefined)(`faults of snapshots on docker${why ? ` (skipped: ${why})` : ''}`, () => {
  let engine: Dockerd;
  const open = () => dockerBackend({ host: engine.host, guestPath: guestBinary(), baseImage: 'base' });

  beforeAll(async () => {
    engine = await startDockerd();
    await engine.importBaseImage();
  });
  afterEach(async () => {
    armFaultPoints();
    // What a case that failed has left would fail those after it.
    const backend = open();
    for (const { id } of await backend.list()) await backend.remove(id);
    for (const { id } of await backend.snapshots()) await backend.removeSnapshot(id);
    await backend.close();
  });
  afterAll(() => engine?.stop());

  async function setUp(backend: DockerBackend): Promise<Stage> {
    const [id, child] = [newId('sbx'), newId('sbx')];
    const [snapshot, taken] = [newId('snap'), newId('snap')];
    await backend.ensure(id, spec);
    const guest = await backend.connect(id);
    const files = guest.files('user');
    await files.write(NOTE, Buffer.from('then'));
    await backend.snapshot(id, snapshot);
    await files.write(NOTE, Buffer.from('now'));
    const work = { id: 'work', argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' };
    await (await guest.exec(work))[Symbol.asyncDispose]();
    return { backend, id, child, snapshot, taken };
  }

  /** Everything is removed, and the engine has nothing of it. */
  async function tearDown({ backend, id, child, snapshot, taken }: Stage): Promise<void> {
    for (const each of [id, child]) await backend.remove(each);
    for (const each of [snapshot, taken]) await backend.removeSnapshot(each);
    await backend.sweep();
    expect(await backend.snapshots()).toEqual([]);
    expect(await backend.list()).toEqual([]);
    const client = dockerClient(engine.host);
    const look = async (path: string, filters: object) =>
      (await client.json('GET', path, {
        action: 'look',
        query: { all: true, filters: JSON.stringify(filters) },
      })) as unknown[];
    expect(await look('/containers/json', { label: ['cay.sandbox'] })).toEqual([]);
    expect(await look('/images/json', { label: ['cay.snapshot'] })).toEqual([]);
    client.close();
  }

  for (const { verb, faults, act, check } of scenes) {
    it.skipIf(whyLater() !== undefined).each(faults)(
      `${verb} that fails at %s is done or undone`,
      async (fault) => {
        const backend = open();
        const stage = await setUp(backend);
        armFaultPoints({ [fault]: 'error' });
        await act(stage).catch(() => {});
        armFaultPoints();
        await check(stage);
        await tearDown(stage);
        await backend.close();
      },
    );

    it.each(faults)(
      `${verb} of a server that is killed at %s is done or undone by the next`,
      async (fault) => {
        const killed = open();
        const stage = await setUp(killed);
        const { promise: reached, resolve } = Promise.withResolvers<void>();
        armFaultPoints({
          [fault]: () => {
            resolve();
            return new Promise(() => {});
          },
        });
        act(stage).catch(() => {});
        await reached;
        armFaultPoints();
        // The next server knows nothing of the first, which never goes on.
        const next = { ...stage, backend: open() };
        await next.backend.list();
        // The first still holds its connection, and may take the guest's once more.
        await checkAgain(() => check(next));
        await tearDown(next);
        await next.backend.close();
        await killed.close();
      },
    );
  }

  it.skipIf(whyLater() !== undefined)(
    'makes one layer of a hundred',
    async () => {
      const backend = open();
      let id = newId('sbx');
      await backend.ensure(id, spec);
      const snapshots: SnapshotId[] = [];
      const ids = [id];
      const LAYERS = 105;
      for (let generation = 0; generation < LAYERS; generation++) {
        const snapshot = newId('snap');
        await backend.snapshot(id, snapshot);
        snapshots.push(snapshot);
        id = newId('sbx');
        ids.push(id);
        await backend.clone(id, spec, snapshot);
      }
      await backend.ensure(id, spec);
      const guest = await backend.connect(id);
      const ran = await drain(
        await guest.exec({ id: 'a', argv: ['id', '-un'], env: {}, workdir: '/', user: 'user' }),
      );
      expect(ran.stdout).toBe('user\n');
      for (const each of ids) await backend.remove(each);
      for (const each of snapshots) await backend.removeSnapshot(each);
      await backend.close();
    },
    240_000,
  );
});
