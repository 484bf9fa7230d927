import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { SandboxSpecSchema, isCayError, newId, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { backendSuite, type TestPlatform } from '../../../../test/conformance/backend-suite.ts';
import { drain, until } from '../../../../test/conformance/box.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../../../../test/support/dockerd.ts';
import { guestBinary } from '../../guest/guest-binary.ts';
import { openPolicy, type Policy } from '../../policy/policy.ts';
import type { Observation } from '../backend.ts';
import { LABELS } from './container-config.ts';
import { dockerClient } from './docker-client.ts';
import { dockerBackend, type DockerBackend } from './docker.ts';

const why = whyNoDockerd();
if (why !== undefined) console.info(`docker: skipped: ${why}`);

const spec = SandboxSpecSchema.parse({ limits: { diskBytes: null } });

function backendOn(engine: Pick<Dockerd, 'host'>, policy?: Policy): DockerBackend {
  return dockerBackend({ host: engine.host, guestPath: guestBinary(), baseImage: 'base', policy });
}

/** The engine's ids of the containers of a sandbox, behind the backend's back. */
async function containersOf(engine: Dockerd, id: SandboxId): Promise<string[]> {
  const client = dockerClient(engine.host);
  const query = { all: true, filters: JSON.stringify({ label: [`${LABELS.sandbox}=${id}`] }) };
  const found = (await client.json('GET', '/containers/json', { action: 'look', query })) as { Id: string }[];
  client.close();
  return found.map(({ Id }) => Id);
}

async function pidOf(engine: Dockerd, id: SandboxId): Promise<number> {
  const [container] = await containersOf(engine, id);
  return Number(execFileSync('docker', ['-H', engine.host, 'inspect', '-f', '{{.State.Pid}}', container!]));
}

async function killOutside(engine: Dockerd, id: SandboxId): Promise<void> {
  const client = dockerClient(engine.host);
  for (const container of await containersOf(engine, id))
    await client.json('POST', `/containers/${container}/kill`, { action: 'kill' });
  client.close();
}

async function platform(): Promise<TestPlatform> {
  const engine = await startDockerd();
  await engine.importBaseImage();
  const made: TestPlatform = {
    backend: backendOn(engine),
    spec: { limits: { diskBytes: null } },
    restart: async () => backendOn(engine),
    crash: (id) => killOutside(engine, id),
    hostPaths: [engine.directory],
    async leftovers() {
      const client = dockerClient(engine.host);
      const found = (await client.json('GET', '/containers/json', {
        action: 'look',
        query: { all: true },
      })) as { Names: string[] }[];
      const { Volumes } = (await client.json('GET', '/volumes', { action: 'look' })) as {
        Volumes: { Name: string }[] | null;
      };
      client.close();
      return [
        ...found.map(({ Names }) => `container ${Names.join()}`),
        ...(Volumes ?? []).map(({ Name }) => `volume ${Name}`),
      ];
    },
    async cleanup() {
      await made.backend.close();
      await engine.stop();
    },
  };
  return made;
}

describe.skipIf(why !== undefined)('docker', () => {
  backendSuite('docker', platform, { sandboxes: 20 });
});

describe('docker without an engine', () => {
  it('says that the engine is away and what to do about it', async () => {
    const backend = dockerBackend({ host: 'unix:///nonexistent/docker.sock', guestPath: '/nonexistent' });
    const error = await backend.list().catch((reason: unknown) => reason);
    expect(isCayError(error, 'unavailable') && error.hint).toContain('start the Docker engine');
    await backend.close();
  });
});

describe.skipIf(why !== undefined)('docker and its engine', () => {
  let engine: Dockerd;
  let backend: DockerBackend;
  const ids: SandboxId[] = [];
  const make = async (overrides: Parameters<typeof SandboxSpecSchema.parse>[0] = {}) => {
    const id = newId('sbx');
    ids.push(id);
    await backend.ensure(id, { ...spec, ...(overrides as object) });
    return { id, guest: await backend.connect(id) };
  };
  const exec = { env: {}, workdir: '/', user: 'user' };

  beforeAll(async () => {
    engine = await startDockerd({ liveRestore: true });
    await engine.importBaseImage();
    backend = backendOn(engine);
  });

  afterAll(async () => {
    for (const id of ids) await backend?.remove(id);
    await backend?.close();
    await engine?.stop();
  });

  it('goes on with a command over a restart of the engine', async () => {
    const { id, guest } = await make();
    const handle = await guest.exec({
      ...exec,
      id: 'long',
      shell: 'i=0; while [ $i -lt 100 ]; do echo $i; i=$((i+1)); sleep 0.03; done; exit 5',
    });
    const ran = drain(handle);
    await engine.halt();
    await expect(backend.observe(id)).rejects.toMatchObject({ code: 'unavailable' });
    await engine.resume();
    const { stdout, exitCode } = await ran;
    expect(stdout.trim().split('\n')).toEqual(Array.from({ length: 100 }, (_, at) => String(at)));
    expect(exitCode).toBe(5);
    expect(await backend.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
  });

  it('tells of a container that is removed, and of those that end while the engine is away', async () => {
    const removed = await make();
    const killed = await make();
    const gone = await make();
    const aborter = new AbortController();
    const seen: Observation[] = [];
    const watching = (async () => {
      for await (const observation of backend.watch({ signal: aborter.signal })) seen.push(observation);
    })();
    const saw = (id: SandboxId, phase: string) => () =>
      seen.some((each) => each.id === id && each.phase === phase);
    const [container] = await containersOf(engine, removed.id);
    execFileSync('docker', ['-H', engine.host, 'rm', '-f', container!]);
    await until('the removal was told', saw(removed.id, 'absent'), 2000);
    expect((await backend.observe(removed.id)).phase).toBe('absent');
    await expect(backend.connect(removed.id)).rejects.toMatchObject({ code: 'not_found' });

    const [killedPid, gonePid] = [await pidOf(engine, killed.id), await pidOf(engine, gone.id)];
    const shim = Number(execFileSync('ps', ['-o', 'ppid=', '-p', String(gonePid)]));
    await engine.halt();
    // As after the end of the whole machine: neither the guest nor what would tell of its end is there.
    process.kill(shim, 'SIGKILL');
    process.kill(gonePid, 'SIGKILL');
    process.kill(killedPid, 'SIGKILL');
    await engine.resume();
    await until('the ends were told', () => saw(killed.id, 'failed')() && saw(gone.id, 'failed')(), 5000);
    expect(seen.find(({ id, phase }) => id === killed.id && phase === 'failed')).toMatchObject({
      reason: 'crashed',
    });
    expect(seen.find(({ id, phase }) => id === gone.id && phase === 'failed')).toMatchObject({
      reason: 'host_restarted',
    });
    aborter.abort();
    await watching;
  });

  it('keeps a frozen sandbox from running and lets it go on', async () => {
    const { id, guest } = await make();
    const counted = async () =>
      Number(
        (
          await drain(await guest.exec({ ...exec, id: `n-${Math.random()}`, argv: ['wc', '-c', '/tmp/n'] }))
        ).stdout.split(' ')[0],
      );
    await guest.exec({ ...exec, id: 'count', shell: 'while :; do printf x >> /tmp/n; sleep 0.01; done' });
    await backend.freeze(id);
    await backend.freeze(id);
    const first = await backend.stats(id);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await backend.stats(id)).cpuUsageMs).toBe(first.cpuUsageMs);
    expect((await backend.observe(id)).phase).toBe('ready');
    await backend.thaw(id);
    await backend.thaw(id);
    const before = await counted();
    await until('it counts again', async () => (await counted()) > before);
  });

  it('stops a frozen sandbox', async () => {
    const { id } = await make();
    await backend.freeze(id);
    expect((await backend.stop(id, { graceMs: 200 })).phase).toBe('stopped');
  });

  it('says that a container with a read-only root has its user and its working directory', async () => {
    const { guest } = await make({ readOnlyRoot: true, workdir: '/srv/made/here' });
    const ran = await drain(
      await guest.exec({ ...exec, id: 'id', shell: 'id -un; cd /srv/made/here && pwd; ls -d ~' }),
    );
    expect(ran.stdout).toBe('user\n/srv/made/here\n/home/user\n');
  });

  it('makes and starts nothing of images and runtimes that the operator does not allow', async () => {
    const docker = (...args: string[]) => execFileSync('docker', ['-H', engine.host, ...args]).toString();
    for (const name of ['python:3', 'secret:1']) docker('tag', 'base', name);
    const { id } = await make({ template: 'secret:1' });
    await backend.stop(id, { graceMs: 0 });

    const picky = backendOn(engine, openPolicy({ images: ['python:*'] }));
    expect((await picky.capabilities()).templates).toEqual(['base', 'python:3']);
    const of = (template: string) => ({ ...spec, template });
    await picky.validate(of('python:3'));
    for (const template of ['secret:1', 'secret', 'localhost/python:3', `secret@sha256:${'0'.repeat(64)}`]) {
      const refused = { code: 'permission_denied', details: { allowed: ['python:*'] } };
      await expect(picky.validate(of(template))).rejects.toMatchObject(refused);
      await expect(picky.ensure(newId('sbx'), of(template))).rejects.toMatchObject(refused);
    }
    await expect(picky.ensure(id, of('secret:1'))).rejects.toMatchObject({ code: 'permission_denied' });
    expect((await picky.observe(id)).phase).toBe('stopped');
    await picky.close();

    const strict = backendOn(engine, openPolicy({ runtimes: ['runsc'] }));
    expect((await strict.capabilities()).runtimes).toEqual([]);
    for (const runtime of [undefined, 'runc', 'process']) {
      const wanted = { ...spec, ...(runtime && { runtime }) };
      await expect(strict.validate(wanted)).rejects.toMatchObject({
        code: 'permission_denied',
        details: { allowed: ['runsc'] },
      });
      await expect(strict.ensure(newId('sbx'), wanted)).rejects.toMatchObject({ code: 'permission_denied' });
    }
    await expect(strict.ensure(id, of('secret:1'))).rejects.toMatchObject({
      code: 'permission_denied',
      details: { runtime: 'runc' },
    });
    await strict.close();
    docker('rmi', 'python:3', 'secret:1');
  });

  it('starts a container again with the limits that it is to have by now', async () => {
    const { id } = await make();
    await backend.stop(id, { graceMs: 0 });
    await backend.ensure(id, { ...spec, limits: { ...spec.limits, pids: 100, memoryBytes: 2 ** 29 } });
    const [container] = await containersOf(engine, id);
    const config = JSON.parse(
      execFileSync('docker', ['-H', engine.host, 'inspect', container!]).toString(),
    )[0].HostConfig;
    expect(config).toMatchObject({ PidsLimit: 100, Memory: 2 ** 29, MemorySwap: 2 ** 29 });
  });

  it('hardens its containers', async () => {
    const { id, guest } = await make();
    const status = (
      await drain(await guest.exec({ ...exec, id: 'status', argv: ['cat', '/proc/1/status'], user: 'root' }))
    ).stdout;
    expect(status).toMatch(/NoNewPrivs:\s*1/);
    expect(status).toMatch(/Seccomp:\s*2/);
    const [container] = await containersOf(engine, id);
    const config = JSON.parse(
      execFileSync('docker', ['-H', engine.host, 'inspect', container!]).toString(),
    )[0].HostConfig;
    expect(config).toMatchObject({
      NetworkMode: 'none',
      Privileged: false,
      PidsLimit: 2048,
      Memory: 2 ** 31,
      MemorySwap: 2 ** 31,
      RestartPolicy: { Name: 'no' },
    });
  });

  it('keeps the sandboxes of two installations apart', async () => {
    const { id } = await make();
    const other = dockerBackend({
      host: engine.host,
      guestPath: guestBinary(),
      baseImage: 'base',
      installation: 'other',
    });
    expect(await other.list()).toEqual([]);
    expect((await other.observe(id)).phase).toBe('absent');
    await other.close();
  });
});

const whyNoBtrfs =
  why ??
  (existsSync('/usr/sbin/mkfs.btrfs') || existsSync('/sbin/mkfs.btrfs')
    ? undefined
    : 'mkfs.btrfs is not installed');
if (whyNoBtrfs !== undefined) console.info(`docker on btrfs: skipped: ${whyNoBtrfs}`);

describe.skipIf(whyNoBtrfs !== undefined)('docker on btrfs', () => {
  const MiB = 1024 * 1024;

  it('claims no disk limits, which do not always hold there, and refuses a spec with one', async () => {
    const engine = await startDockerd({ btrfsBytes: 2048 * MiB });
    const backend = backendOn(engine);
    try {
      await engine.importBaseImage();
      const { abilities, notes } = await backend.capabilities();
      expect(abilities.diskLimit).toBe(false);
      expect(notes.diskLimit).toContain('btrfs');
      const limited = { ...spec, limits: { ...spec.limits, diskBytes: 48 * MiB } };
      await expect(backend.ensure(newId('sbx'), limited)).rejects.toMatchObject({ code: 'unsupported' });
    } finally {
      await backend.close();
      await engine.stop();
    }
  });
});

describe.skipIf(why !== undefined)('docker with images and guests that do not work', () => {
  let engine: Dockerd;

  beforeAll(async () => {
    engine = await startDockerd();
    await engine.importBaseImage();
  });

  afterAll(() => engine?.stop());

  it('undoes a start whose guest ends at once', async () => {
    const backend = dockerBackend({ host: engine.host, guestPath: '/usr/bin/true', baseImage: 'base' });
    const id = newId('sbx');
    await expect(backend.ensure(id, spec)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await backend.observe(id)).phase).toBe('absent');
    await backend.close();
  });

  it('names the guest that is missing, and leaves nothing', async () => {
    const backend = dockerBackend({ host: engine.host, guestPath: '/nonexistent/guest', baseImage: 'base' });
    const id = newId('sbx');
    await expect(backend.ensure(id, spec)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining('"/nonexistent/guest"'),
    });
    expect(await containersOf(engine, id)).toEqual([]);
    await backend.close();
  });

  it('says which image is missing', async () => {
    const backend = dockerBackend({
      host: engine.host,
      guestPath: guestBinary(),
      baseImage: 'missing/base:1',
    });
    await expect(backend.ensure(newId('sbx'), spec)).rejects.toMatchObject({
      code: 'not_found',
      details: { what: 'template' },
    });
    await backend.close();
  });

  it('gives commands the environment of the image, but not its home', async () => {
    const file = 'FROM base\nENV PATH=/opt/tool/bin:/usr/bin:/bin HOME=/root GREETING=hello\n';
    execFileSync('docker', ['-H', engine.host, 'build', '-q', '-t', 'with-env', '-'], {
      input: file,
      env: { ...process.env, DOCKER_BUILDKIT: '0' },
    });
    const backend = backendOn(engine);
    const id = newId('sbx');
    await backend.ensure(id, { ...spec, template: 'with-env' });
    const guest = await backend.connect(id);
    const handle = await guest.exec({
      id: 'env',
      shell: 'echo "$PATH $HOME $GREETING"',
      env: { GREETING: 'mine' },
      workdir: '/',
      user: 'user',
    });
    expect((await drain(handle)).stdout).toBe('/opt/tool/bin:/usr/bin:/bin /home/user mine\n');
    await backend.remove(id);
    await backend.close();
  });
});
