/** What only agent-sandbox has: volumes and a warm pool, with the real controller. */
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxBackend } from '../../../server/src/backends/kubernetes/agent-sandbox/agent-sandbox.ts';
import type { PoolAndStorage } from '../../../server/src/backends/kubernetes/agent-sandbox/settings.ts';
import type { Backend } from '../../../server/src/backends/backend.ts';
import { LABELS } from '../../../server/src/backends/kubernetes/client/names.ts';
import type { KubernetesObject, List } from '../../../server/src/backends/kubernetes/client/objects.ts';
import { backendSuite } from '../../conformance/backend-suite.ts';
import { drain, until } from '../../conformance/box.ts';
import { kubectl, type Kubectl } from '../cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE } from '../cluster/sandbox-images.ts';
import { STORAGE_CLASS } from '../cluster/volumes.ts';
import { podPlatform, SKIPPED, type PodPlatform } from './pod-platform.ts';
import { sharedCluster } from './shared-cluster.ts';

const { cluster, why, whyNoGvisor } = await sharedCluster('agent-sandbox');

const CREATING = fileURLToPath(new URL('../creating.ts', import.meta.url));
const CORE = '/apis/agents.x-k8s.io/v1beta1';
const EXTENSIONS = '/apis/extensions.agents.x-k8s.io/v1beta1';
const exec = { env: {}, workdir: '/', user: 'user' };

describe.skipIf(why !== undefined)('agent-sandbox', () => {
  let api: Kubectl;
  beforeAll(async () => {
    api = await kubectl(cluster);
  });
  afterAll(() => api?.close());

  const platform = (runtimeClass?: string, more: PoolAndStorage = {}) =>
    podPlatform(cluster, api, (settings) => agentSandboxBackend({ ...settings, ...more }), runtimeClass);
  const specOf = ({ spec }: PodPlatform, more: object = {}) => SandboxSpecSchema.parse({ ...spec, ...more });
  const run = async (backend: Backend, id: SandboxId, shell: string) =>
    drain(await (await backend.connect(id)).exec({ ...exec, id: newId('sbx'), shell }));
  const list = async (path: string) =>
    (await api.get<List<KubernetesObject & { status?: { readyReplicas?: number } }>>(path)).items;

  describe('with volumes', () => {
    it.for(['default', 'gvisor'])(
      'keeps the files of a sandbox that is suspended, in pods of "%s"',
      async (runtime, { skip }) => {
        if (runtime === 'gvisor' && whyNoGvisor !== undefined) return skip(whyNoGvisor);
        const runtimeClass = runtime === 'default' ? undefined : runtime;
        const made = await platform(runtimeClass, { storage: { size: '1Gi', storageClass: STORAGE_CLASS } });
        const { backend, namespace } = made;
        try {
          const [id, spec] = [newId('sbx'), specOf(made)];
          await backend.ensure(id, spec);
          expect(await run(backend, id, 'echo kept > ~/file; chmod 600 ~/file')).toMatchObject({
            exitCode: 0,
          });
          expect(await backend.stop(id, { graceMs: 100 })).toMatchObject({
            phase: 'stopped',
            incarnation: 1,
          });
          expect(await api.pods(namespace, id)).toEqual([]);
          expect(await backend.observe(id)).toMatchObject({ phase: 'stopped' });
          expect(await backend.ensure(id, spec)).toMatchObject({ phase: 'ready', incarnation: 2 });
          expect(await run(backend, id, 'cat ~/file; stat -c %a ~/file')).toMatchObject({
            stdout: 'kept\n600\n',
          });

          const [pod] = await api.pods(namespace, id);
          await api.remove(`/api/v1/namespaces/${namespace}/pods/${pod!.metadata.name}`);
          await until('its loss is seen', async () => (await backend.observe(id)).phase === 'failed', 10_000);
          expect(await backend.ensure(id, spec)).toMatchObject({ phase: 'ready', incarnation: 3 });
          expect(await run(backend, id, 'cat ~/file')).toMatchObject({ stdout: 'kept\n' });
          await backend.remove(id);
          expect(await api.names(namespace)).toEqual([]);
        } finally {
          await made.cleanup?.();
        }
      },
    );
  });

  backendSuite(
    'agent-sandbox with volumes',
    () => platform(undefined, { storage: { size: '1Gi', storageClass: STORAGE_CLASS } }),
    {
      areas: ['suspension'],
      skip: SKIPPED,
    },
  );

  describe('with a warm pool', () => {
    let made: PodPlatform;

    beforeAll(async () => {
      made = await platform(undefined, { warmPool: 2 });
      await made.backend.capabilities();
      await filled();
    });
    afterAll(() => made?.cleanup?.());

    const pools = () => list(`${EXTENSIONS}/namespaces/${made.namespace}/sandboxwarmpools`);
    const filled = () =>
      until('the pool is full', async () => (await pools())[0]?.status?.readyReplicas === 2, 60_000);
    const sandboxesOf = (id: SandboxId) =>
      api.get<List<KubernetesObject>>(`${CORE}/namespaces/${made.namespace}/sandboxes`, {
        labelSelector: `${LABELS.sandbox}=${id}`,
      });

    it('gives a sandbox of the pool to a caller that asks for the defaults, once', async () => {
      const { backend, namespace } = made;
      await filled();
      const [pool] = await pools();
      const before = (await list(`${CORE}/namespaces/${namespace}/sandboxes`)).map(
        ({ metadata }) => metadata.uid,
      );
      const id = newId('sbx');
      expect(await backend.ensure(id, specOf(made))).toMatchObject({ phase: 'ready', incarnation: 1 });
      expect(await backend.ensure(id, specOf(made))).toMatchObject({ phase: 'ready', incarnation: 1 });
      const [given, ...rest] = (await sandboxesOf(id)).items;
      expect(rest).toEqual([]);
      expect(given!.metadata.name.startsWith(pool!.metadata.name)).toBe(true);
      expect(before).toContain(given!.metadata.uid);
      expect(await run(backend, id, 'echo hello; exit 3')).toMatchObject({ stdout: 'hello\n', exitCode: 3 });

      const other = await made.restart!();
      expect(await other.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
      expect((await other.list()).map((each) => each.id)).toEqual([id]);
      await other.close();

      await backend.stop(id, { graceMs: 100 });
      expect(await backend.observe(id)).toMatchObject({ phase: 'stopped' });
      expect(await backend.ensure(id, specOf(made))).toMatchObject({ phase: 'ready', incarnation: 2 });
      await backend.remove(id);
      expect((await sandboxesOf(id)).items).toEqual([]);
      expect(await list(`${EXTENSIONS}/namespaces/${namespace}/sandboxclaims`)).toEqual([]);
      expect((await backend.observe(id)).phase).toBe('absent');
    });

    it('makes a sandbox outside the pool for a caller that asks for more', async () => {
      const { backend, namespace } = made;
      const id = newId('sbx');
      await backend.ensure(id, specOf(made, { workdir: '/srv/own' }));
      expect(await list(`${EXTENSIONS}/namespaces/${namespace}/sandboxclaims`)).toEqual([]);
      expect((await sandboxesOf(id)).items).toHaveLength(1);
      await backend.remove(id);
    });

    it('serves more than it has in stock', async () => {
      const { backend } = made;
      await filled();
      const ids = Array.from({ length: 5 }, () => newId('sbx'));
      await Promise.all(ids.map((id) => backend.ensure(id, specOf(made))));
      for (const id of ids) expect(await run(backend, id, 'exit 4')).toMatchObject({ exitCode: 4 });
      await Promise.all(ids.map((id) => backend.remove(id)));
      expect(await backend.list()).toEqual([]);
    });

    it(
      'is ended by the cluster with the lease of its claim, when no server is there to renew it',
      { timeout: 180_000 },
      async () => {
        const { namespace } = made;
        await filled();
        const server = await made.restart!();
        const id = newId('sbx');
        await server.ensure(id, specOf(made));
        await server.close();
        const [given] = (await sandboxesOf(id)).items;
        const claims = `${EXTENSIONS}/namespaces/${namespace}/sandboxclaims`;
        const [claim] = (await list(claims)).filter(
          ({ metadata }) => metadata.labels?.[LABELS.sandbox] === id,
        );
        const shutdownTime = new Date(Date.now() + 1000).toISOString().replace(/\.\d+Z/, 'Z');
        await api.patch(`${claims}/${claim!.metadata.name}`, { spec: { lifecycle: { shutdownTime } } });
        // A garbage collector learns of kinds that were installed of late every half minute.
        const pods = async () =>
          (await list(`/api/v1/namespaces/${namespace}/pods`)).map(({ metadata }) => metadata.name);
        await until(
          'all of it is gone',
          async () =>
            (await sandboxesOf(id)).items.length === 0 && !(await pods()).includes(given!.metadata.name),
          120_000,
        );
        expect((await made.backend.observe(id)).phase).toBe('absent');
      },
    );

    it('tells of the loss of one that was given', async () => {
      const { backend, namespace } = made;
      await filled();
      const id = newId('sbx');
      await backend.ensure(id, specOf(made));
      const [given] = (await sandboxesOf(id)).items;
      await api.remove(`${CORE}/namespaces/${namespace}/sandboxes/${given!.metadata.name}`);
      await until('its loss is seen', async () => (await backend.observe(id)).phase === 'failed', 10_000);
      expect(await backend.ensure(id, specOf(made))).toMatchObject({ phase: 'ready', incarnation: 2 });
      await backend.remove(id);
    });
  });

  describe('when the server is killed during a create', () => {
    it.each([
      ['directly', 0, `${CORE}`, 'sandboxes'],
      ['from the pool', 1, `${EXTENSIONS}`, 'sandboxclaims'],
    ])(
      'goes on where it was, and leaves nothing, if it was made %s',
      async (_, warmPool, version, plural) => {
        const made = await platform(undefined, { warmPool });
        const { backend, namespace } = made;
        try {
          await backend.capabilities();
          for (const delayMs of [0, 100, 400, 1000]) {
            const id = newId('sbx');
            const spec = specOf(made);
            const settings = {
              kubeconfig: cluster.kubeconfig,
              namespace,
              guestImage: GUEST_IMAGE,
              baseImage: BASE_IMAGE,
              pullPolicy: 'Never',
              warmPool,
            };
            const child = spawn(process.execPath, [CREATING, JSON.stringify({ settings, id, spec })], {
              stdio: 'inherit',
            });
            const ended = new Promise((resolve) => child.once('exit', resolve));
            const selector = { labelSelector: `${LABELS.sandbox}=${id}` };
            await until(
              'it is being made',
              async () =>
                (
                  await api.get<List<KubernetesObject>>(
                    `${version}/namespaces/${namespace}/${plural}`,
                    selector,
                  )
                ).items.length > 0,
              20_000,
            );
            await new Promise((resolve) => setTimeout(resolve, delayMs));
            child.kill('SIGKILL');
            await ended;
            expect(['starting', 'ready']).toContain((await backend.observe(id)).phase);
            expect((await backend.list()).map((each) => each.id)).toEqual([id]);
            if (delayMs !== 100)
              expect(await backend.ensure(id, spec)).toMatchObject({ phase: 'ready', incarnation: 1 });
            await backend.remove(id);
            expect(await backend.list()).toEqual([]);
            expect(await api.pods(namespace, id)).toEqual([]);
          }
          if (warmPool === 0) expect(await api.names(namespace)).toEqual([]);
        } finally {
          await made.cleanup?.();
        }
      },
    );
  });
});
