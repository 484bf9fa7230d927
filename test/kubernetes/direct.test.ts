/** Guests that are reached over the network of pods, by a server that has it, on a real cluster. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { DIRECT_PORT, type KubernetesSettings } from '../../server/src/backends/kubernetes/settings.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { NODE_BRIDGE } from './cluster/node.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';
import type { Asked } from './inside.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`guests reached directly: skipped: ${why}`);
const whyNoGvisor = why ?? (await whyNoCluster('full', { gvisor: true }));
if (whyNoGvisor !== why) console.info(`guests reached directly on gVisor: skipped: ${whyNoGvisor}`);

const RUNTIMES = [undefined, ...(whyNoGvisor === undefined ? ['gvisor'] : [])];
const run = promisify(execFile);
const NAMESPACE = 'direct';
const INSIDE = fileURLToPath(new URL('inside.ts', import.meta.url));

interface Inside {
  ask(asked: Asked): Promise<unknown>;
  close(): Promise<void>;
}

describe.skipIf(why !== undefined)('guests that are reached directly', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let inside: Inside;

  beforeAll(async () => {
    cluster = await startCluster('full');
    api = await kubectl(cluster);
    await importSandboxImages(cluster);
    await api.createNamespace(NAMESPACE);
    if (cluster.whyNoGvisor === undefined) await api.createRuntimeClass('gvisor');
    inside = await startInside();
  });

  afterEach(async () => {
    expect(await api.names(NAMESPACE)).toEqual([]);
  });

  afterAll(async () => {
    await inside?.close();
    api?.close();
    await cluster?.stop();
  });

  async function startInside(): Promise<Inside> {
    const settings: KubernetesSettings = {
      kubeconfig: `${cluster.directory}/pki/admin.kubeconfig`,
      namespace: NAMESPACE,
      guestImage: GUEST_IMAGE,
      baseImage: BASE_IMAGE,
      pullPolicy: 'Never',
      reach: 'direct',
    };
    const [program, ...args] = [...cluster.enter, process.execPath, INSIDE, JSON.stringify(settings)];
    const child: ChildProcess = spawn(program!, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    let last = 0;
    const waiting = new Map<number, PromiseWithResolvers<unknown>>();
    child.on('message', ({ number, value, error }: { number: number; value?: unknown; error?: string }) => {
      if (error === undefined) waiting.get(number)?.resolve(value);
      else waiting.get(number)?.reject(new Error(error));
    });
    await once(child, 'message');
    return {
      ask(asked) {
        const answer = Promise.withResolvers<unknown>();
        waiting.set(++last, answer);
        child.send({ number: last, asked });
        return answer.promise;
      },
      async close() {
        const gone = once(child, 'exit');
        child.disconnect();
        await gone;
      },
    };
  }

  async function make(runtime?: string): Promise<SandboxId> {
    const id = newId('sbx');
    const limits = { diskBytes: null, ...(runtime === undefined && { pids: null }) };
    await inside.ask({
      verb: 'ensure',
      id,
      spec: SandboxSpecSchema.parse({ limits, ...(runtime && { runtime }) }),
    });
    return id;
  }

  const runIn = (id: SandboxId, shell: string) =>
    inside.ask({ verb: 'run', id, command: newId('sbx'), shell }) as Promise<{
      stdout: string;
      end: unknown;
    }>;

  /** Whether the port of the guest has a connection, as the pod sees it. */
  async function isDirect(id: SandboxId): Promise<boolean> {
    const { stdout } = await runIn(id, 'cat /proc/net/tcp /proc/net/tcp6');
    return new RegExp(`:${DIRECT_PORT.toString(16)} \\S+ 01 `, 'i').test(stdout);
  }

  /** An API server that was away takes a moment. */
  async function removed(id: SandboxId): Promise<void> {
    await expect
      .poll(() => inside.ask({ verb: 'remove', id }).then(() => 'removed', String), { timeout: 30_000 })
      .toBe('removed');
  }

  it('are reached by exec where the network blocks the server, which is logged once', async () => {
    // To a bridge that leads nowhere: what is sent there is lost.
    const halves = ['10.88.0.0/17', '10.88.128.0/17'];
    const [nsenter, ...enter] = cluster.enter as [string, ...string[]];
    const route = (verb: string) =>
      Promise.all(
        halves.map((half) => run(nsenter, [...enter, 'ip', 'route', verb, half, 'dev', NODE_BRIDGE])),
      );
    const before = (await inside.ask({ verb: 'errors' })) as string[];
    await route('add');
    try {
      const ids = [await make(), await make()];
      for (const id of ids) expect(await isDirect(id)).toBe(false);
      const told = ((await inside.ask({ verb: 'errors' })) as string[]).slice(before.length);
      expect(told).toEqual([
        expect.stringContaining('over the network of its pod, so it is reached by exec'),
      ]);
      for (const id of ids) await removed(id);
    } finally {
      await route('del');
    }
    const id = await make();
    expect(await isDirect(id)).toBe(true);
    await removed(id);
  });

  /** With an exec stream, which goes through the API server, nothing of this would go on. */
  it('go on and take new commands while there is no API server, in pods of gVisor too', async () => {
    const ids = await Promise.all(RUNTIMES.map(make));
    const counting = ids.map((id) =>
      runIn(id, 'i=0; while [ $i -lt 100 ]; do echo $i; i=$((i+1)); sleep 0.03; done'),
    );
    await cluster.hold('kube-apiserver');
    try {
      for (const id of ids) {
        expect(await runIn(id, 'echo without it')).toMatchObject({
          stdout: 'without it\n',
          end: { kind: 'exited', exitCode: 0 },
        });
        expect(await runIn(id, 'head -c 600000 /dev/zero | wc -c')).toMatchObject({ stdout: '600000\n' });
      }
      for (const { stdout } of await Promise.all(counting))
        expect(stdout.trim().split('\n')).toHaveLength(100);
    } finally {
      await cluster.release('kube-apiserver');
    }
    await Promise.all(ids.map(removed));
  });
});
