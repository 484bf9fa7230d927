/**
 * A program in a pod that has taken the guest's place, over the real exec stream: a caller gets a
 * typed error in bounded time and memory, other sandboxes are not affected, and it is removed like any other.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  CayError,
  isCayError,
  newId,
  SandboxSpecSchema,
  type NetworkPolicy,
  type SandboxId,
} from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ACCOUNTS } from '../../packaging/images/guest-image.ts';
import { layerOf, writeImage } from '../../packaging/images/image.ts';
import type { Backend, Freezing } from '../../server/src/backends/backend.ts';
import { kubernetesJobBackend } from '../../server/src/backends/kubernetes/job/kubernetes-job.ts';
import {
  kubernetesClient,
  type KubernetesClient,
} from '../../server/src/backends/kubernetes/client/kubernetes-client.ts';
import { unpack } from '../../server/src/cli/lib/archive/unpack.ts';
import { openWorld } from '../../server/src/egress/testing/program.ts';
import { FRAME } from '../../server/src/guest/frame.ts';
import type { Guest } from '../../server/src/guest/guest.ts';
import { BLOCK, encodeHeader } from '../../server/src/lib/tar/header.ts';
import { drain, inPieces, until, within } from '../conformance/box.ts';
import { startCluster, whyNoCluster, type Cluster } from './cluster/cluster.ts';
import { execIn } from './cluster/exec-in.ts';
import { kubectl, type Kubectl } from './cluster/kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './cluster/sandbox-images.ts';
import * as lies from './hostile/lies.ts';

const why = await whyNoCluster('full');
if (why !== undefined) console.info(`pods that lie: skipped: ${why}`);

const NAMESPACE = 'hostile';
const LIE = new URL('hostile/lie.py', import.meta.url);
const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null, pids: null } });
const exec = { env: {}, workdir: '/', user: 'user' };
const MiB = 1024 * 1024;
/** Far more than anything here needs, and far less than a flood would take. */
const MAX_GROWTH_BYTES = 256 * MiB;
const ANSWER_MS = 20_000;

describe.skipIf(why !== undefined)('a pod that lies', () => {
  let cluster: Cluster;
  let api: Kubectl;
  let client: KubernetesClient;
  let backend: Backend & Freezing;
  let liar: { id: SandboxId; pod: string; guest: Guest };
  let honest: { id: SandboxId; guest: Guest };
  const world = openWorld();

  beforeAll(async () => {
    cluster = await startCluster('full');
    api = await kubectl(cluster);
    client = await kubernetesClient({ kubeconfig: cluster.kubeconfig });
    await importSandboxImages(cluster);
    await api.createNamespace(NAMESPACE);
    const images = { guestImage: GUEST_IMAGE, baseImage: BASE_IMAGE, pullPolicy: 'Never' as const };
    backend = (await kubernetesJobBackend({
      kubeconfig: cluster.kubeconfig,
      namespace: NAMESPACE,
      egress: world.egress,
      ...images,
    })) as Backend & Freezing;
    const make = async () => {
      const id = newId('sbx');
      await backend.ensure(id, spec);
      return { id, guest: await backend.connect(id) };
    };
    honest = await make();
    const made = await make();
    const [pod] = await api.pods(NAMESPACE, made.id);
    liar = { ...made, pod: pod!.metadata.name };
    const files = made.guest.files('user');
    await files.write('/tmp/lie.py', await readFile(LIE));
    await files.write('/tmp/script', lies.script(lies.waitForEver));
    await made.guest.exec({
      ...exec,
      id: 'lie',
      argv: ['python3', '/tmp/lie.py', 'serve'],
      overflow: 'drop',
    });
    const serving = { namespace: NAMESPACE, pod: liar.pod, argv: ['ls', '/tmp/serving'] };
    const there = () =>
      execIn(client, serving).then(
        () => true,
        () => false,
      );
    await until('the guest is replaced', there);
  });

  afterAll(async () => {
    await backend?.close();
    world.egress.close();
    client?.close();
    api?.close();
    await cluster?.stop();
  });

  /** Plays this script to every connection from now on. */
  async function tell(...steps: Buffer[]): Promise<void> {
    const text = lies.script(...steps).toString('base64');
    const inPod = (...argv: string[]) => execIn(client, { namespace: NAMESPACE, pod: liar.pod, argv });
    await inPod(
      'python3',
      '-c',
      'import base64, sys; open("/tmp/script", "wb").write(base64.b64decode(sys.argv[1]))',
      text,
    );
    await inPod('python3', '/tmp/lie.py', 'again');
    const isPlayed = async () => {
      const [told, played] = (await inPod('sh', '-c', 'md5sum < /tmp/script; md5sum < /tmp/played')).split(
        '\n',
      );
      return told === played;
    };
    await until('it is dialled again', isPlayed, ANSWER_MS);
  }

  /**
   * Resolves with what it rejected with, if that comes in time, the server does not grow, and others are
   * served meanwhile.
   */
  async function failureOf(
    what: string,
    ask: () => Promise<unknown>,
  ): Promise<{ code: string; message: string }> {
    const before = process.memoryUsage().rss;
    let most = 0;
    const watching = setInterval(() => (most = Math.max(most, process.memoryUsage().rss - before)), 20);
    try {
      const failed = ask().then(
        () => expect.fail(`${what} was believed`),
        (error: unknown) => error,
      );
      const ran = await within(
        ANSWER_MS,
        'another sandbox',
        drain(await honest.guest.exec({ ...exec, id: newId('cmd'), shell: 'echo fine' })),
      );
      expect(ran).toMatchObject({ stdout: 'fine\n', exitCode: 0 });
      const error = await within(ANSWER_MS, what, failed);
      expect(isCayError(error)).toBe(true);
      expect(most).toBeLessThan(MAX_GROWTH_BYTES);
      return error as { code: string; message: string };
    } finally {
      clearInterval(watching);
    }
  }

  /** A command that was started is followed over reconnects until the caller aborts. */
  const run = async (patienceMs = ANSWER_MS) => {
    const signal = AbortSignal.timeout(patienceMs);
    return drain(await liar.guest.exec({ ...exec, id: newId('cmd'), argv: ['true'] }, { signal }));
  };

  it.for<[string, Buffer[]]>([
    ['garbage', [lies.sendForEver(Buffer.from('HTTP/1.1 200 OK\r\nServer: not a guest\r\n\r\n'))]],
    [
      'a frame of four gigabytes',
      [lies.send(lies.frame(FRAME.hello, 0, Buffer.alloc(64), { length: 0xffff_ffff })), lies.waitForEver],
    ],
    ['half a frame', [lies.send(lies.hello.subarray(0, 20))]],
    ['nothing', [lies.waitForEver]],
    ['output before hello', [lies.sendForEver(lies.data())]],
  ])('that says %s is not to be reached', async ([what, steps]) => {
    await tell(...steps);
    expect((await failureOf(what, () => run())).code).toBe('unavailable');
  });

  it.for<[string, Buffer[]]>([
    ['more output than it was granted', [lies.asked('exec'), lies.sendForEver(lies.data())]],
    [
      'messages without end that nobody reads',
      [
        lies.asked('exec'),
        lies.sendForEver(lies.message({ event: 'started', pid: 1, offset: 0, existing: false })),
      ],
    ],
    [
      'an answer that is none',
      [lies.asked('exec'), lies.send(lies.message({ event: 'started', pid: 'one' })), lies.waitForEver],
    ],
    [
      'an end that is none',
      [
        lies.asked('exec'),
        lies.send(
          lies.message({ event: 'started', pid: 1, offset: 0, existing: false }),
          lies.message({ event: 'exited', kind: 'won', code: 1e9 }),
        ),
        lies.waitForEver,
      ],
    ],
    [
      'PING without end, and reads nothing',
      [
        lies.asked('exec'),
        lies.sendForEver(
          Buffer.concat(Array.from({ length: 1000 }, () => lies.frame(FRAME.ping, 0, Buffer.alloc(64)))),
        ),
      ],
    ],
    [
      'streams of its own without end',
      [
        lies.asked('exec'),
        lies.send(...Array.from({ length: 5000 }, (_, at) => lies.frame(FRAME.open, 2 + 2 * at))),
        lies.send(lies.frame(FRAME.open, 2)),
        lies.waitForEver,
      ],
    ],
  ])('that answers a command with %s is cut off', async ([what, steps]) => {
    await tell(...steps);
    const { code } = await failureOf(what, async () => {
      const { end } = await run(5000);
      throw new CayError('unavailable', `It ended as ${end.kind}`);
    });
    expect(['unavailable', 'deadline_exceeded']).toContain(code);
  });

  it('that sends a flood of unrequested frames harms no other sandbox, and is removed as fast', async () => {
    await tell(lies.asked('exec'), lies.sendForEver(lies.data(undefined, 4711)));
    const aborter = new AbortController();
    const asked = liar.guest.exec({ ...exec, id: 'flooded', argv: ['true'] }, { signal: aborter.signal });
    const failed = failureOf('a flood', () => asked);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    aborter.abort();
    expect((await failed).code).toBe('cancelled');
  });

  it.for<[string, object]>([
    ['less than nothing', { processes: -1, memoryBytes: 1, memoryTotalBytes: 1, oomKills: 0, uptimeMs: 1 }],
    ['no number', { processes: 1, memoryBytes: 'NaN', memoryTotalBytes: 1, oomKills: 0, uptimeMs: 1 }],
    ['nothing', {}],
  ])('that tells stats of %s is not believed', async ([what, stats]) => {
    await tell(lies.asked('stats'), lies.send(lies.message(stats as never), lies.end), lies.waitForEver);
    expect((await failureOf(what, () => backend.stats(liar.id))).code).toBe('unavailable');
  });

  it('that tells enormous stats is taken for what can be', async () => {
    const most = Number.MAX_SAFE_INTEGER;
    const stats = {
      processes: most,
      memoryBytes: most,
      memoryTotalBytes: most,
      oomKills: most,
      cpuUsageMs: most,
      uptimeMs: most,
    };
    await tell(lies.asked('stats'), lies.send(lies.message(stats), lies.end), lies.waitForEver);
    const told = await within(
      ANSWER_MS,
      'stats',
      untilAnswered(() => backend.stats(liar.id)),
    );
    for (const value of Object.values(told))
      expect(value === null || Number.isSafeInteger(Math.trunc(value))).toBe(true);
  });

  it('that asks for what its sandbox may not reach gets nothing, whatever it says it is', async () => {
    const reached: string[] = [];
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (data) => reached.push(data.toString()));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    try {
      world.names.set('open.test', ['127.0.0.1']).set('secret.test', ['127.0.0.1']);
      const policy = (name: string): NetworkPolicy => ({ base: 'none', allow: [`${name}:${port}`] });
      world.egress.policies.set(honest.id, [policy('secret.test')]);
      world.egress.policies.set(liar.id, [policy('open.test')]);
      await tell(
        lies.send(
          lies.hello,
          lies.opens(2, { op: 'egress', name: 'secret.test', port }),
          lies.opens(4, { op: 'egress', name: 'secret.test', port, sandbox: honest.id }),
          lies.opens(6, { op: 'egress', address: '127.0.0.1', port }),
          lies.opens(8, { op: 'lookup', name: 'secret.test' }),
          lies.opens(10, { op: 'egress', name: 'open.test', port }),
          ...[2, 4, 6, 10].map((stream) => lies.data(Buffer.from(`stream ${stream}`), stream)),
        ),
        lies.waitForEver,
      );
      await until('what it may reach is reached', () => reached.length > 0, ANSWER_MS);
      await until('all was decided', () => world.egress.attempts(liar.id).length >= 3, ANSWER_MS);
      expect(new Set(reached)).toEqual(new Set(['stream 10']));
      const told = world.egress
        .attempts(liar.id)
        .map(({ name, address, verdict }) => ({ to: name ?? address, verdict }));
      expect(told).toContainEqual({ to: 'secret.test', verdict: 'denied' });
      expect(told).toContainEqual({ to: '127.0.0.1', verdict: 'denied' });
      expect(told.filter(({ verdict }) => verdict !== 'denied').map(({ to }) => to)).not.toContain(
        'secret.test',
      );
      expect(world.egress.attempts(honest.id)).toEqual([]);
    } finally {
      world.egress.policies.remove(liar.id);
      server.close();
    }
  });

  it('that never answers keeps no verb from ending', async () => {
    await tell(lies.send(lies.hello), lies.waitForEver);
    expect(['unavailable', 'deadline_exceeded']).toContain(
      (await failureOf('stats', () => backend.stats(liar.id))).code,
    );
    expect(['unavailable', 'deadline_exceeded']).toContain(
      (await failureOf('a stop', () => backend.stop(liar.id, { graceMs: 100 }))).code,
    );
    expect(['unavailable', 'deadline_exceeded']).toContain(
      (await failureOf('a freeze', () => backend.ability('freeze')!.freeze(liar.id))).code,
    );
    const { uid: _uid, pod: _pod, ...seen } = await backend.observe(liar.id);
    expect(seen).toEqual({ id: liar.id, phase: 'ready', incarnation: 1, runtime: 'default' });
  });

  describe('whose archive', () => {
    const file = (name: string, content: string, more: object = {}) => {
      const bytes = Buffer.from(content);
      const head = encodeHeader({
        name,
        type: 'file',
        sizeBytes: bytes.length,
        mode: 0o644,
        uid: 0,
        gid: 0,
        modifiedAtMs: 0,
        target: '',
        ...more,
      });
      return Buffer.concat([head, bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)]);
    };
    const symlink = (name: string, target: string) => file(name, '', { type: 'symlink', target });

    async function take(
      ...parts: Buffer[]
    ): Promise<{ inside: string[]; beside: string[]; error?: unknown }> {
      const archive: Buffer[] = [];
      for await (const piece of inPieces(Buffer.concat(parts), 32 * 1024)) archive.push(Buffer.from(piece));
      await tell(
        lies.asked('tar'),
        lies.send(...archive.map((piece) => lies.data(piece)), lies.end),
        lies.waitForEver,
      );
      const outside = await mkdtemp('/tmp/cay-hostile-');
      try {
        const dir = `${outside}/in/side`;
        await mkdir(dir, { recursive: true });
        const error = await within(
          ANSWER_MS,
          'the archive',
          untilAnswered(async () => unpack(dir, await liar.guest.files('user').tar('/'))).then(
            () => undefined,
            (failure: unknown) => failure,
          ),
        );
        const beside = (await readdir(outside))
          .concat(await readdir(`${outside}/in`))
          .filter((name) => name !== 'in' && name !== 'side');
        return { inside: await readdir(dir), beside, error };
      } finally {
        await rm(outside, { recursive: true, force: true });
      }
    }

    it.for<[string, () => Buffer[]]>([
      ['climbs', () => [file('../escaped', 'x')]],
      ['climbs in its middle', () => [file('a/../../escaped', 'x')]],
      [
        'is cut off in a file',
        () => [
          encodeHeader({
            name: 'big',
            type: 'file',
            sizeBytes: 1e12,
            mode: 0o644,
            uid: 0,
            gid: 0,
            modifiedAtMs: 0,
            target: '',
          }),
          Buffer.alloc(BLOCK),
        ],
      ],
      ['is no archive', () => [Buffer.alloc(4 * BLOCK, 'z')]],
    ])('%s is refused', async ([, parts]) => {
      const { beside, error } = await take(...parts());
      expect(isCayError(error)).toBe(true);
      expect(beside).toEqual([]);
    });

    it('leads out by links ends in the directory it was meant for', async () => {
      const { beside } = await take(
        symlink('out', '../..'),
        file('out/escaped', 'x'),
        symlink('root', '/'),
        file('root/tmp/cay-hostile-escaped', 'x'),
        Buffer.alloc(2 * BLOCK),
      );
      expect(beside).toEqual([]);
      expect(await readdir('/tmp')).not.toContain('cay-hostile-escaped');
    });
  });

  it('from its first moment is not made, and nothing of it is left', { timeout: 120_000 }, async () => {
    const program = `${cluster.directory}/mute-guest`;
    await promisify(execFile)('cc', [
      '-static',
      '-O1',
      '-o',
      program,
      fileURLToPath(new URL('hostile/mute-guest.c', import.meta.url)),
    ]);
    const image = {
      name: 'cay.test/mute:1',
      layer: layerOf([{ path: 'cay-guest', mode: 0o755, content: await readFile(program) }, ...ACCOUNTS]),
    };
    await writeImage(`${program}.tar`, image);
    await cluster.importImage(`${program}.tar`);
    const settings = {
      kubeconfig: cluster.kubeconfig,
      namespace: NAMESPACE,
      baseImage: BASE_IMAGE,
      pullPolicy: 'Never' as const,
    };
    const deceived = await kubernetesJobBackend({ ...settings, guestImage: image.name });
    try {
      const id = newId('sbx');
      const before = process.memoryUsage().rss;
      await expect(within(60_000, 'its start', deceived.ensure(id, spec))).rejects.toMatchObject({
        code: 'unavailable',
      });
      expect(process.memoryUsage().rss - before).toBeLessThan(MAX_GROWTH_BYTES);
      expect(await deceived.observe(id)).toMatchObject({ phase: 'absent' });
      expect(await api.pods(NAMESPACE, id)).toEqual([]);
    } finally {
      await deceived.close();
    }
  });

  it('is removed like any other, and its neighbour is as it was', async () => {
    await tell(lies.asked('exec'), lies.sendForEver(lies.data(undefined, 4711)));
    await within(30_000, 'its removal', backend.remove(liar.id));
    expect((await backend.observe(liar.id)).phase).toBe('absent');
    expect(await api.pods(NAMESPACE, liar.id)).toEqual([]);
    expect(await backend.observe(honest.id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    await backend.remove(honest.id);
    expect(await api.names(NAMESPACE)).toEqual([]);
  });

  /** The first connection after a change may be one that heard the old script. */
  async function untilAnswered<T>(ask: () => Promise<T>): Promise<T> {
    let answer: T | undefined;
    let last: unknown;
    await until('it answers', async () => {
      try {
        answer = await ask();
        return true;
      } catch (error) {
        last = error;
        return !isCayError(error, 'unavailable') || !/lost|dialled/.test(error.message);
      }
    });
    if (answer === undefined) throw last;
    return answer;
  }
});
