/** The warm pool of kubernetes-job: Jobs that run before they are asked for. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../../server/src/backends/backend.ts';
import { LABELS } from '../../../server/src/backends/kubernetes/client/names.ts';
import type { Job, List } from '../../../server/src/backends/kubernetes/client/objects.ts';
import { kubernetesJobBackend } from '../../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import { drain, until } from '../../conformance/box.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { podPlatform, type PodPlatform } from './pod-platform.ts';
import { sharedCluster } from './shared-cluster.ts';

const { cluster, why } = await sharedCluster('the warm pool of kubernetes-job');
const POOL = 2;
const exec = { env: {}, workdir: '/', user: 'user' };

describe.skipIf(why !== undefined)('a warm pool of Jobs', () => {
  let api: Kubectl;
  let made: PodPlatform;

  beforeAll(async () => {
    api = await kubectl(cluster);
    made = await podPlatform(cluster, api, (settings) =>
      kubernetesJobBackend({ ...settings, warmPool: POOL }),
    );
    await made.backend.capabilities();
    await filled();
  });
  afterAll(async () => {
    await made?.cleanup?.();
    api?.close();
  });

  const spec = (more: object = {}) => SandboxSpecSchema.parse({ ...made.spec, ...more });
  const jobs = async (selector: string) =>
    (
      await api.get<List<Job>>(`/apis/batch/v1/namespaces/${made.namespace}/jobs`, {
        labelSelector: selector,
      })
    ).items;
  const spares = () => jobs(`${LABELS.pool},!${LABELS.sandbox}`);
  const jobsOf = (id: SandboxId) => jobs(`${LABELS.sandbox}=${id}`);
  const filled = () =>
    until(
      'the pool is full',
      async () => {
        const found = await spares();
        return found.length === POOL && found.every(({ status }) => (status?.ready ?? 0) > 0);
      },
      60_000,
    );
  const run = async (backend: Backend, id: SandboxId, shell: string) =>
    drain(await (await backend.connect(id)).exec({ ...exec, id: newId('sbx'), shell }));

  it('gives a Job that runs already to a caller that asks for the usual, once, and replaces it', async () => {
    const { backend } = made;
    await filled();
    const before = (await spares()).map(({ metadata }) => metadata.uid);
    const id = newId('sbx');
    const given = await backend.ensure(id, spec());
    expect(given).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect(before).toContain(given.uid);
    expect(await backend.ensure(id, spec())).toMatchObject({
      phase: 'ready',
      incarnation: 1,
      uid: given.uid,
    });
    expect(await jobsOf(id)).toHaveLength(1);
    expect(await run(backend, id, 'echo hello; exit 3')).toMatchObject({ stdout: 'hello\n', exitCode: 3 });
    expect((await backend.observe(id)).pod).toMatchObject({ namespace: made.namespace });
    await filled();

    const other = await made.restart!();
    expect(await other.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    expect((await other.list()).map((each) => each.id)).toEqual([id]);
    expect(await run(other, id, 'exit 4')).toMatchObject({ exitCode: 4 });
    await other.close();
    expect(await spares()).toHaveLength(POOL);

    await run(backend, id, 'echo kept > ~/file');
    await backend.stop(id, { graceMs: 100 });
    expect(await backend.observe(id)).toMatchObject({ phase: 'stopped' });
    expect(await backend.ensure(id, spec())).toMatchObject({ phase: 'ready', incarnation: 2 });
    expect(await run(backend, id, 'cat ~/file')).toMatchObject({ stdout: 'kept\n' });
    await backend.remove(id);
    expect(await jobsOf(id)).toEqual([]);
    expect((await backend.observe(id)).phase).toBe('absent');
  });

  it('makes a Job outside the pool for a caller that asks for more', async () => {
    const { backend } = made;
    const id = newId('sbx');
    await backend.ensure(id, spec({ workdir: '/srv/own' }));
    const [job] = await jobsOf(id);
    expect(job!.metadata.labels?.[LABELS.pool]).toBeUndefined();
    await backend.remove(id);
  });

  it('serves more at once than it has, each sandbox with a Job of its own', async () => {
    const { backend } = made;
    await filled();
    const ids = Array.from({ length: 5 }, () => newId('sbx'));
    const given = await Promise.all(ids.map((id) => backend.ensure(id, spec())));
    expect(new Set(given.map(({ uid }) => uid)).size).toBe(5);
    for (const id of ids) expect(await run(backend, id, 'exit 4')).toMatchObject({ exitCode: 4 });
    await Promise.all(ids.map((id) => backend.remove(id)));
    expect(await backend.list()).toEqual([]);
  });

  it('never gives one spare to two servers', { timeout: 120_000 }, async () => {
    const other = await made.restart!();
    try {
      await other.capabilities();
      await filled();
      const ids = Array.from({ length: 4 }, () => newId('sbx'));
      const given = await Promise.all(
        ids.map((id, at) => (at % 2 ? other : made.backend).ensure(id, spec())),
      );
      expect(new Set(given.map(({ uid }) => uid)).size).toBe(4);
      for (const id of ids) expect(await jobsOf(id)).toHaveLength(1);
      await Promise.all(ids.map((id) => made.backend.remove(id)));
    } finally {
      await other.close();
    }
    // Two servers may have filled it at once: what is too many goes.
    await filled();
  });

  it('tells of the loss of one that was given', async () => {
    const { backend } = made;
    await filled();
    const id = newId('sbx');
    await backend.ensure(id, spec());
    const [job] = await jobsOf(id);
    await api.remove(
      `/apis/batch/v1/namespaces/${made.namespace}/jobs/${job!.metadata.name}?propagationPolicy=Background`,
    );
    await until('its loss is seen', async () => (await backend.observe(id)).phase === 'absent', 10_000);
    expect(await backend.ensure(id, spec())).toMatchObject({ phase: 'ready' });
    await backend.remove(id);
  });

  it('goes when the settings ask for none', async () => {
    await filled();
    const settings = { kubeconfig: cluster.kubeconfig, namespace: made.namespace };
    const images = { guestImage: 'cay.test/guest:1', baseImage: 'cay.test/base:1' };
    await made.backend.close();
    const without = await kubernetesJobBackend({ ...settings, ...images });
    try {
      const swept = await without.ability('sweep')!.sweep();
      expect(swept.filter(({ kind }) => kind === 'warm_pool')).toHaveLength(POOL);
      await until('the pool is gone', async () => (await spares()).length === 0, 30_000);
    } finally {
      await without.close();
    }
  });
});
