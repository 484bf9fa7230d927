/**
 * Snapshots, clones and rollbacks of pods beyond what the conformance suite asks: each verb failing and being
 * killed between its steps, sandboxes from a warm pool and with volumes, and archives of other backends.
 */
import { isCayError, newId, SandboxSpecSchema, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../../server/src/backends/backend.ts';
import { agentSandboxBackend } from '../../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import { kubernetesJobBackend } from '../../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { projectNamespace } from '../../../server/src/backends/kubernetes/client/names.ts';
import { BESIDE_FAULTS } from '../../../server/src/backends/kubernetes/snapshots/make-beside.ts';
import { ROLLBACK_FAULTS } from '../../../server/src/backends/kubernetes/snapshots/rollback-pod.ts';
import { SNAPSHOT_FAULTS } from '../../../server/src/backends/kubernetes/snapshots/take-snapshot.ts';
import { armFaultPoints } from '../../../server/src/lib/fault-point.ts';
import { gather, inPieces } from '../../conformance/box.ts';
import { localPlatform, whyNoLocal } from '../../support/local-platform.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { STORAGE_CLASS } from '../cluster/volumes.ts';
import { podPlatform, type Opening, type PodPlatform } from './pod-platform.ts';
import { sharedCluster } from './shared-cluster.ts';

const { cluster, why } = await sharedCluster('snapshots of pods');
const NOTE = '/home/user/note';

interface Stage {
  backend: Backend;
  id: SandboxId;
  child: SandboxId;
  snapshot: SnapshotId;
  taken: SnapshotId;
}

const travel = (backend: Backend) => backend.ability('snapshots')!;

async function noteOf(backend: Backend, id: SandboxId): Promise<string> {
  const guest = await backend.connect(id);
  return (await gather((await guest.files('user').read(NOTE)).data)).toString();
}

const noteIn = async (backend: Backend, snapshot: SnapshotId) =>
  (await gather(travel(backend).snapshotFiles(snapshot).read(NOTE))).toString();

describe.skipIf(why !== undefined)('snapshots of pods', () => {
  let api: Kubectl;
  const platforms: PodPlatform[] = [];
  beforeAll(async () => {
    api = await kubectl(cluster);
  });
  afterAll(async () => {
    for (const each of platforms) await each.cleanup();
    api?.close();
  });
  afterEach(() => armFaultPoints());

  async function opened(opening: Opening): Promise<PodPlatform> {
    const made = await podPlatform(cluster, api, opening);
    platforms.push(made);
    return made;
  }
  const specOf = (made: PodPlatform, more: object = {}) => SandboxSpecSchema.parse({ ...made.spec, ...more });

  async function setUp(made: PodPlatform): Promise<Stage> {
    const { backend } = made;
    const [id, child, snapshot, taken] = [newId('sbx'), newId('sbx'), newId('snap'), newId('snap')];
    await backend.ensure(id, specOf(made));
    const guest = await backend.connect(id);
    await guest.files('user').write(NOTE, Buffer.from('then'));
    await travel(backend).snapshot(id, snapshot);
    await guest.files('user').write(NOTE, Buffer.from('now'));
    const work = { id: 'work', argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' };
    await (await guest.exec(work))[Symbol.asyncDispose]();
    return { backend, id, child, snapshot, taken };
  }

  /** Everything is removed, and neither the cluster nor the disk has anything of it. */
  async function tearDown(made: PodPlatform, { backend, id, child, snapshot, taken }: Stage): Promise<void> {
    for (const each of [id, child]) await backend.remove(each);
    for (const each of [snapshot, taken]) await travel(backend).removeSnapshot(each);
    await backend.ability('sweep')!.sweep();
    expect(await travel(backend).snapshots()).toEqual([]);
    expect(await backend.list()).toEqual([]);
    await expect.poll(made.leftovers!, { timeout: 30_000 }).toEqual([]);
  }

  /** Once more while the connection to the guest gets lost. */
  async function checkAgain(check: () => Promise<void>): Promise<void> {
    for (let turn = 1; ; turn++) {
      try {
        return await check();
      } catch (error) {
        if (turn === 5 || !isCayError(error, 'unavailable')) throw error;
      }
    }
  }

  const scenes = [
    {
      verb: 'snapshot()',
      faults: SNAPSHOT_FAULTS,
      act: ({ backend, id, taken }: Stage) => travel(backend).snapshot(id, taken),
      async check({ backend, id, taken }: Stage) {
        expect(await noteOf(backend, id)).toBe('now');
        if ((await travel(backend).snapshots()).some((each) => each.id === taken))
          expect(await noteIn(backend, taken)).toBe('now');
      },
    },
    {
      verb: 'clone() that starts',
      faults: BESIDE_FAULTS,
      act: ({ backend, child, snapshot }: Stage, made: PodPlatform) =>
        travel(backend).clone(child, specOf(made), snapshot, { start: true }),
      async check({ backend, child, snapshot }: Stage, made: PodPlatform) {
        await travel(backend).clone(child, specOf(made), snapshot, { start: true });
        expect(await noteOf(backend, child)).toBe('then');
      },
    },
    {
      verb: 'rollback() of what runs',
      faults: ROLLBACK_FAULTS,
      act: ({ backend, id, snapshot }: Stage) => travel(backend).rollback(id, snapshot),
      async check({ backend, id }: Stage) {
        const { phase, frozen, incarnation } = await backend.observe(id);
        expect({ phase, frozen }).toEqual({ phase: 'ready', frozen: undefined });
        expect(await noteOf(backend, id)).toBe(incarnation === 1 ? 'now' : 'then');
        const guest = await backend.connect(id);
        const work = (await guest.commands()).filter((each) => each.id === 'work' && !each.end);
        expect(work).toHaveLength(incarnation === 1 ? 1 : 0);
      },
    },
  ];

  for (const [name, opening] of [
    ['kubernetes-job', kubernetesJobBackend],
    ['agent-sandbox', agentSandboxBackend],
  ] as const) {
    describe(`on ${name}`, () => {
      let made: PodPlatform;
      beforeAll(async () => {
        made = await opened(opening);
      });

      for (const { verb, faults, act, check } of scenes) {
        it.each(faults)(`${verb} that fails at %s is done or undone`, async (fault) => {
          const stage = await setUp(made);
          armFaultPoints({ [fault]: 'error' });
          await expect(act(stage, made)).rejects.toThrow(fault);
          armFaultPoints();
          await check(stage, made);
          await tearDown(made, stage);
        });

        it.each(faults)(
          `${verb} of a server that is killed at %s is done or undone by the next`,
          async (fault) => {
            const killed = made.backend;
            const stage = await setUp(made);
            const { promise: reached, resolve } = Promise.withResolvers<void>();
            armFaultPoints({
              [fault]: () => {
                resolve();
                return new Promise(() => {});
              },
            });
            act(stage, made).catch(() => {});
            await reached;
            armFaultPoints();
            // The next server knows nothing of the first, which never goes on.
            made.backend = await made.restart!();
            const next = { ...stage, backend: made.backend };
            await next.backend.ability('sweep')!.sweep();
            // The first still holds its connection, and may take the guest's once more.
            await checkAgain(() => check(next, made));
            await tearDown(made, next);
            await killed.close();
          },
        );
      }

      it('keeps what its owner may not read, hard links and all of the work directory', async () => {
        const { backend } = made;
        const spec = specOf(made, { workdir: '/work' });
        const id = newId('sbx');
        await backend.ensure(id, spec);
        const run = async (at: SandboxId, shell: string) => {
          const guest = await backend.connect(at);
          const command = { id: newId('cmd'), shell, env: {}, workdir: '/work', user: 'user' };
          const handle = await guest.exec(command);
          let said = '';
          for await (const chunk of handle.output)
            if ('data' in chunk) said += Buffer.from(chunk.data).toString();
          return said;
        };
        const look = 'stat -c "%n %a %h" closed closed/file secret one /tmp/note | cat; cat one';
        await run(
          id,
          'mkdir closed; echo x > closed/file; chmod 0 closed/file closed; echo y > secret; chmod 0 secret; ' +
            'echo z > one; ln one other; echo t > /tmp/note; chmod 700 closed; chmod 0 closed/file',
        );
        const before = await run(id, look);
        await run(id, 'chmod 0 closed');
        const snapshot = newId('snap');
        await travel(backend).snapshot(id, snapshot);
        expect(await run(id, 'stat -c %a closed secret')).toBe('0\n0\n');
        // Its own working directory is another, and the files are there all the same.
        const child = newId('sbx');
        await travel(backend).clone(child, specOf(made), snapshot, { start: true });
        const guest = await backend.connect(child);
        const command = { env: {}, workdir: '/work', user: 'user' };
        const handle = await guest.exec({ ...command, id: 'look', shell: `chmod 700 closed; ${look}` });
        let after = '';
        for await (const chunk of handle.output)
          if ('data' in chunk) after += Buffer.from(chunk.data).toString();
        expect(after).toBe(before);
        const again = newId('snap');
        await travel(backend).snapshot(child, again);
        const read = travel(backend).snapshotFiles(again).read('/work/other');
        expect((await gather(read)).toString()).toBe('z\n');
        for (const each of [id, child]) await backend.remove(each);
        for (const each of [snapshot, again]) await travel(backend).removeSnapshot(each);
      });

      it('thaws nothing that was frozen, and a rollback of it runs', async () => {
        const { backend } = made;
        const freezing = backend.ability('freeze')!;
        const stage = await setUp(made);
        await freezing.freeze(stage.id);
        await travel(backend).snapshot(stage.id, stage.taken);
        expect(await backend.observe(stage.id)).toMatchObject({ phase: 'ready', frozen: true });
        expect(await noteIn(backend, stage.taken)).toBe('now');
        const back = await travel(backend).rollback(stage.id, stage.snapshot);
        expect(back).toMatchObject({ phase: 'ready', incarnation: 2 });
        expect(back.frozen).toBeUndefined();
        expect(await noteOf(backend, stage.id)).toBe('then');
        await tearDown(made, stage);
      });
    });
  }

  it('rolls a sandbox back that came from a warm pool', async () => {
    for (const opening of [kubernetesJobBackend, agentSandboxBackend]) {
      const made = await opened((settings) => opening({ ...settings, warmPool: 1 }));
      const { backend } = made;
      await backend.capabilities();
      await expect.poll(made.leftovers!, { timeout: 30_000 }).not.toEqual([]);
      const stage = await setUp(made);
      expect(await travel(backend).rollback(stage.id, stage.snapshot)).toMatchObject({ phase: 'ready' });
      expect(await noteOf(backend, stage.id)).toBe('then');
      await expect.poll(async () => (await backend.observe(stage.id)).phase).toBe('ready');
      expect((await backend.list()).map(({ id }) => id)).toEqual([stage.id]);
      await backend.remove(stage.id);
      expect((await backend.observe(stage.id)).phase).toBe('absent');
      await travel(backend).removeSnapshot(stage.snapshot);
    }
  });

  it('keeps those of a project in its namespace, also what is imported for it', async () => {
    const made = await podPlatform(cluster, api, (settings) =>
      kubernetesJobBackend({ ...settings, tenancy: { pods: 20, perProject: true } }),
    );
    const { backend, namespace } = made;
    const project = newId('prj');
    const spec = specOf(made);
    try {
      const [id, child, snapshot, imported] = [newId('sbx'), newId('sbx'), newId('snap'), newId('snap')];
      await backend.ensure(id, spec, { project });
      const files = (await backend.connect(id, { project })).files('user');
      await files.write(NOTE, Buffer.from('then'));
      await travel(backend).snapshot(id, snapshot, { project });
      await files.write(NOTE, Buffer.from('now'));
      const archive = await gather(travel(backend).exportSnapshot(snapshot));
      await travel(backend).importSnapshot(imported, inPieces(archive, 1000), { project });
      await travel(backend).clone(child, spec, imported, { project, start: true });
      expect(await noteOf(backend, child)).toBe('then');
      expect(await travel(backend).rollback(id, imported, { project })).toMatchObject({ phase: 'ready' });
      expect(await noteOf(backend, id)).toBe('then');
      for (const each of [id, child]) await backend.remove(each, { project });
      for (const each of [snapshot, imported]) await travel(backend).removeSnapshot(each, { project });
      expect(await travel(backend).snapshots()).toEqual([]);
    } finally {
      await made.cleanup();
      await api.remove(`/api/v1/namespaces/${projectNamespace(namespace, project)}`);
    }
  });

  it('keeps, clones and rolls back sandboxes whose files are on volumes', async () => {
    const made = await opened((settings) =>
      agentSandboxBackend({ ...settings, storage: { size: '1Gi', storageClass: STORAGE_CLASS } }),
    );
    const { backend } = made;
    const stage = await setUp(made);
    await backend.ability('suspend')!.suspend(stage.id);
    await travel(backend).snapshot(stage.id, stage.taken);
    expect(await backend.observe(stage.id)).toMatchObject({ phase: 'stopped', suspended: true });
    expect(await noteIn(backend, stage.taken)).toBe('now');
    expect(await travel(backend).rollback(stage.id, stage.snapshot)).toMatchObject({ phase: 'stopped' });
    await backend.ensure(stage.id, specOf(made));
    expect(await noteOf(backend, stage.id)).toBe('then');
    await travel(backend).clone(stage.child, specOf(made), stage.taken);
    expect((await backend.observe(stage.child)).phase).toBe('stopped');
    await backend.ensure(stage.child, specOf(made));
    expect(await noteOf(backend, stage.child)).toBe('now');
    await tearDown(made, stage);
  }, 120_000);

  it.skipIf(whyNoLocal() !== undefined)(
    'takes in archives of this machine, and this machine takes in those of pods',
    async () => {
      const made = await opened(kubernetesJobBackend);
      const local = await localPlatform({ runtime: 'runc' });
      try {
        const stage = await setUp(made);
        const here = newId('sbx');
        const spec = SandboxSpecSchema.parse({ ...local.spec });
        const arrived = newId('snap');
        const archive = await gather(travel(made.backend).exportSnapshot(stage.snapshot));
        const imported = await travel(local.backend).importSnapshot(arrived, inPieces(archive, 100_000));
        expect(imported).toMatchObject({ sandbox: stage.id, memory: false });
        await travel(local.backend).clone(here, spec, arrived, { start: true });
        expect(await noteOf(local.backend, here)).toBe('then');
        const guest = await local.backend.connect(here);
        expect((await guest.files('user').stat(NOTE)).uid).toBe(1000);
        expect((await guest.files('root').stat('/etc/passwd')).uid).toBe(0);
        await guest.files('user').write(NOTE, Buffer.from('from this machine'));
        const back = newId('snap');
        await travel(local.backend).snapshot(here, back);
        const whole = await gather(travel(local.backend).exportSnapshot(back));
        await travel(made.backend).importSnapshot(stage.taken, inPieces(whole, 100_000));
        await travel(made.backend).clone(stage.child, specOf(made), stage.taken, { start: true });
        expect(await noteOf(made.backend, stage.child)).toBe('from this machine');
        await local.backend.remove(here);
        for (const each of [arrived, back]) await travel(local.backend).removeSnapshot(each);
        await tearDown(made, stage);
      } finally {
        await local.cleanup();
      }
    },
    120_000,
  );
});
