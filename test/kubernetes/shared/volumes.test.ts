/** Named volumes as claims of a real cluster: what the conformance suite does not ask for. */
import { newId, SandboxSpecSchema, type Mount, type SandboxId, type VolumeId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxBackend } from '../../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { Backend, VolumeKeeping } from '../../../server/src/backends/backend.ts';
import { LABELS, volumeClaimName } from '../../../server/src/backends/kubernetes/client/names.ts';
import type { KubernetesObject, List } from '../../../server/src/backends/kubernetes/client/objects.ts';
import { kubernetesJobBackend } from '../../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { armFaultPoints } from '../../../server/src/lib/fault-point.ts';
import { drain } from '../../conformance/box.ts';
import { rejects } from '../../conformance/suite.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { PROVISIONED } from '../cluster/provisioner.ts';
import { BASE_IMAGE, GUEST_IMAGE } from '../cluster/sandbox-images.ts';
import { podPlatform, type Opening, type PodPlatform } from './pod-platform.ts';
import { sharedCluster } from './shared-cluster.ts';

const { cluster, why } = await sharedCluster('volumes');
const MiB = 1024 * 1024;

const at = (volume: VolumeId, path = '/data'): Mount => ({ type: 'volume', volume, path, readOnly: false });
const STORAGE = { size: '256Mi', storageClass: PROVISIONED.storageClass };
const withStorage: Opening = (settings) => agentSandboxBackend({ ...settings, storage: STORAGE });
const volumesOf = (backend: Backend): VolumeKeeping => backend.ability('volumes')!;

describe.skipIf(why !== undefined)('volumes on a cluster', () => {
  let api: Kubectl;
  beforeAll(async () => {
    api = await kubectl(cluster);
  });
  afterAll(() => api?.close());

  /** Of named volumes. */
  const claims = async (namespace: string) => {
    const path = `/api/v1/namespaces/${namespace}/persistentvolumeclaims`;
    const { items } = await api.get<List<KubernetesObject>>(path);
    return items.filter(({ metadata }) => metadata.labels?.[LABELS.volume] !== undefined);
  };

  describe.each([
    ['kubernetes-job', kubernetesJobBackend],
    ['agent-sandbox', agentSandboxBackend],
    ['agent-sandbox and a volume for files', withStorage],
  ] as const)('with %s', (_, opening) => {
    let made: PodPlatform;
    beforeAll(async () => {
      made = await podPlatform(cluster, api, opening);
    });
    afterAll(() => made?.cleanup?.());

    const specWith = (...mounts: Mount[]) => SandboxSpecSchema.parse({ ...made.spec, mounts });
    const run = async (id: SandboxId, shell: string) =>
      drain(
        await (
          await made.backend.connect(id)
        ).exec({ id: newId('cmd'), env: {}, workdir: '/', user: 'user', shell }),
      );
    const volume = async () => {
      const id = newId('vol');
      await volumesOf(made.backend).createVolume(id, { sizeBytes: 32 * MiB });
      return id;
    };

    it('is found, with the mounts of a sandbox, by the next server', async () => {
      const id = await volume();
      const sandbox = newId('sbx');
      await made.backend.ensure(sandbox, specWith(at(id)));
      const other = await made.restart!();
      expect(await volumesOf(other).listVolumes()).toEqual([{ id, readOnly: false, sizeBytes: 32 * MiB }]);
      expect(await volumesOf(other).inspectVolume(id)).toMatchObject({
        sizeBytes: 32 * MiB,
        usedBytes: null,
      });
      expect((await rejects(volumesOf(other).removeVolume(id), 'failed_precondition')).details).toMatchObject(
        {
          sandboxes: [sandbox],
        },
      );
      expect(await other.ability('sweep')!.sweep()).toEqual([]);
      await other.remove(sandbox);
      await volumesOf(other).removeVolume(id);
      expect(await claims(made.namespace)).toEqual([]);
      await other.close();
    });

    it('is in no snapshot where it lies below the home directory, and no snapshot is in it', async () => {
      const id = await volume();
      const [first, second] = [newId('sbx'), newId('sbx')];
      const snapshot = newId('snap');
      const snapshots = made.backend.ability('snapshots')!;
      const mounts = [at(id, '/home/user/data')];
      await made.backend.ensure(first, specWith());
      await run(first, 'mkdir ~/data; echo own > ~/data/own; echo kept > ~/kept');
      await snapshots.snapshot(first, snapshot);
      await made.backend.remove(first);

      await snapshots.clone(second, specWith(...mounts), snapshot, { start: true });
      expect(await run(second, 'cat ~/kept; ls ~/data; echo shared > ~/data/shared')).toMatchObject({
        stdout: 'kept\n',
        exitCode: 0,
      });
      const later = newId('snap');
      await snapshots.snapshot(second, later);
      const third = newId('sbx');
      await snapshots.clone(third, specWith(), later, { start: true });
      expect(await run(third, 'cat ~/kept; ls ~')).toMatchObject({ stdout: 'kept\nkept\n' });
      for (const each of [second, third]) await made.backend.remove(each);
      for (const each of [snapshot, later]) await snapshots.removeSnapshot(each);
      await volumesOf(made.backend).removeVolume(id);
    });

    it('is there again after a stop, with what others wrote meanwhile', async () => {
      const id = await volume();
      const [one, other] = [newId('sbx'), newId('sbx')];
      for (const each of [one, other]) await made.backend.ensure(each, specWith(at(id)));
      await run(one, 'echo one > /data/note; echo own > ~/own');
      await made.backend.stop(one, { graceMs: 100 });
      await run(other, 'echo other >> /data/note');
      await rejects(volumesOf(made.backend).removeVolume(id), 'failed_precondition');
      await made.backend.ensure(one, specWith(at(id)));
      expect(await run(one, 'cat /data/note ~/own')).toMatchObject({ stdout: 'one\nother\nown\n' });
      for (const each of [one, other]) await made.backend.remove(each);
      await volumesOf(made.backend).removeVolume(id);
    });

    it('can be the home directory, or what commands work in', async () => {
      const id = await volume();
      const sandbox = newId('sbx');
      const spec = SandboxSpecSchema.parse({
        ...made.spec,
        workdir: '/work/sub',
        mounts: [at(id, '/home/user')],
      });
      await made.backend.ensure(sandbox, spec);
      expect(await run(sandbox, 'echo x > ~/x; stat -c %U ~/x')).toMatchObject({ stdout: 'user\n' });
      await made.backend.remove(sandbox);
      await made.backend.ensure(sandbox, { ...spec, mounts: [at(id, '/work')] });
      expect(await run(sandbox, 'cat /work/x; touch /work/sub/y')).toMatchObject({
        stdout: 'x\n',
        exitCode: 0,
      });
      await made.backend.remove(sandbox);
      await volumesOf(made.backend).removeVolume(id);
    });

    it.each(['/etc/x', '/home', '/.cay', '/var', '/a:b'])('refuses to be at %s', async (path) => {
      await rejects(made.backend.validate(specWith(at(newId('vol'), path))), 'invalid_argument');
    });

    it('is not that of another project', async () => {
      const id = newId('vol');
      const [mine, other] = ['prj_mine', 'prj_other'].map((project) => ({ project }));
      const volumes = volumesOf(made.backend);
      await volumes.createVolume(id, { sizeBytes: 32 * MiB, ...mine! });
      await rejects(volumes.inspectVolume(id, other), 'not_found');
      await rejects(made.backend.validate(specWith(at(id)), other), 'not_found');
      await rejects(made.backend.ensure(newId('sbx'), specWith(at(id)), other), 'not_found');
      await volumes.removeVolume(id, other);
      expect(await volumes.inspectVolume(id, mine)).toMatchObject({ id });
      await made.backend.validate(specWith(at(id)), mine);
      await volumes.removeVolume(id, mine);
    });
  });

  describe('when the server is killed', () => {
    let made: PodPlatform;
    beforeAll(async () => {
      made = await podPlatform(cluster, api, kubernetesJobBackend);
    });
    afterAll(async () => {
      armFaultPoints();
      await made?.cleanup?.();
    });

    /** The operation never goes on from there, as that of a killed server. */
    async function stuckAt(point: string, operation: () => Promise<unknown>): Promise<void> {
      const reached = Promise.withResolvers<void>();
      armFaultPoints({
        [point]: () => {
          reached.resolve();
          return new Promise<void>(() => {});
        },
      });
      operation().catch(() => {});
      await reached.promise;
      armFaultPoints();
    }

    it('one that was being made is no volume, and is removed, made after all, or swept', async () => {
      const volumes = volumesOf(made.backend);
      const id = newId('vol');
      await stuckAt('kubernetes.volume.made', () => volumes.createVolume(id, { sizeBytes: 32 * MiB }));
      expect(await volumes.listVolumes()).toEqual([]);
      await rejects(volumes.inspectVolume(id), 'not_found');
      await rejects(
        made.backend.validate(SandboxSpecSchema.parse({ ...made.spec, mounts: [at(id)] })),
        'not_found',
      );
      expect(await claims(made.namespace)).toHaveLength(1);
      // It may be under way.
      expect(await made.backend.ability('sweep')!.sweep()).toEqual([]);
      await volumes.removeVolume(id);
      expect(await claims(made.namespace)).toEqual([]);
      await stuckAt('kubernetes.volume.made', () => volumes.createVolume(id, { sizeBytes: 32 * MiB }));
      await volumes.createVolume(id, { sizeBytes: 32 * MiB });
      expect(await volumes.listVolumes()).toHaveLength(1);
      await stuckAt('kubernetes.volume.removing', () => volumes.removeVolume(id));
      expect(await volumes.listVolumes()).toEqual([]);
      await volumes.removeVolume(id);
      expect(await claims(made.namespace)).toEqual([]);
    });
  });

  it('is bounded by the quota of its namespace, and one that is not ours is let alone', async () => {
    const namespace = `quota-${newId('sbx').slice(4, 12)}`;
    const tenancy = { pods: 4, claims: 2, storage: '100Mi' };
    const backend = await kubernetesJobBackend({
      kubeconfig: cluster.kubeconfig,
      namespace,
      guestImage: GUEST_IMAGE,
      baseImage: BASE_IMAGE,
      volumes: PROVISIONED,
      tenancy,
    });
    try {
      const volumes = volumesOf(backend);
      const [one, two] = [newId('vol'), newId('vol')];
      await volumes.createVolume(one, { sizeBytes: 64 * MiB });
      const error = await rejects(volumes.createVolume(two, { sizeBytes: 64 * MiB }), 'resource_exhausted');
      expect(error.details).toMatchObject({ reason: 'quota_exceeded' });
      await volumes.createVolume(two, { sizeBytes: 16 * MiB });
      await rejects(volumes.createVolume(newId('vol'), { sizeBytes: 16 * MiB }), 'resource_exhausted');
      const path = `/api/v1/namespaces/${namespace}/persistentvolumeclaims/${volumeClaimName(one)}`;
      await api.patch(path, { metadata: { labels: { [LABELS.installation]: 'other' } } });
      await rejects(volumes.inspectVolume(one), 'not_found');
      await volumes.removeVolume(one);
      await volumes.removeVolume(two);
      expect((await claims(namespace)).map(({ metadata }) => metadata.name)).toEqual([volumeClaimName(one)]);
    } finally {
      await backend.close();
      await api.remove(`/api/v1/namespaces/${namespace}`);
    }
  });
});
