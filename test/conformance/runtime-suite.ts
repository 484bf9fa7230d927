/**
 * What every runtime has to do, tried on this machine with the real guest.
 *
 *     await runtimeSuite('runc', runcRuntime);
 *
 * A runtime that does not work here is skipped with its own reason in the title.
 */
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  rmdirSync,
  lstatSync,
  symlinkSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import type { Cgroups } from '../../server/src/host/cgroups/cgroup.ts';
import { encodeCbor } from '../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, PROTOCOL, writeHeader } from '../../server/src/guest/frame.ts';
import { detectCgroups } from '../../server/src/host/cgroups/detect.ts';
import type { Container, IdMapping, Runtime } from '../../server/src/host/runtimes/runtime.ts';
import { OOM_SCORE } from '../../server/src/host/runtimes/bundle.ts';
import { isAlive, oomScore } from '../../server/src/lib/proc.ts';

export const GUEST_BINARY = join(import.meta.dirname, '../../guest/target/release/cay-guest');

export interface RuntimeSuiteOptions {
  /** Default: as in production, a range far from the host's own users. */
  ids?: IdMapping;
}

export type RuntimeFactory = (options: { stateDir: string; ids: IdMapping; binary?: string }) => Runtime;

export interface Stage {
  container: Container;
  server: Server;
  /** The first bytes that the guest sends. */
  hello: Promise<Buffer>;
  /** Listens, as it does from the beginning; resolves when the guest has dialled. */
  listen: () => Promise<void>;
  /** Has the guest hang up, and refuses new connections. */
  deafen: () => Promise<void>;
  /** Takes down what the runtime does not own. */
  close: () => Promise<void>;
}

export async function runtimeSuite(
  name: string,
  factory: RuntimeFactory,
  options: RuntimeSuiteOptions = {},
): Promise<void> {
  const ids = options.ids ?? { hostId: 1_000_000, size: 65_536 };
  const dir = mkdtempSync(join(tmpdir(), `cay-runtime-${name}-`));
  // The mapped root has to pass through.
  chmodSync(dir, 0o711);
  const prefix = `cay-test-${name}-${process.pid}`;
  const stateDir = join(dir, 'state');
  const runtime = factory({ stateDir, ids });
  const probe = await runtime.probe();
  const title = probe.available ? `Runtime ${name}` : `Runtime ${name} (skipped: ${probe.reason})`;
  const cleanUp = () => {
    rmSync(dir, { recursive: true, force: true });
    for (const hierarchy of readdirSync('/sys/fs/cgroup')) {
      const parent = join('/sys/fs/cgroup', hierarchy, prefix);
      if (existsSync(parent)) rmdirSync(parent);
    }
  };
  if (!probe.available) {
    console.warn(title);
    cleanUp();
    describe.skip(title, () => it('is not available here', () => {}));
    return;
  }

  describe(title, () => {
    const stages: Stage[] = [];
    let cgroups: Cgroups | undefined;
    let count = 0;

    async function stage(changes: Partial<Container> = {}): Promise<Stage> {
      cgroups ??= await detectCgroups({ prefix });
      count += 1;
      const made = await makeStage({
        dir: join(dir, `c${count}`),
        name: `suite-${count}`,
        ids,
        cgroups,
        changes,
      });
      stages.push(made);
      return made;
    }

    async function startedStage(changes: Partial<Container> = {}) {
      const made = await stage(changes);
      await runtime.start(made.container);
      expect((await made.hello).length).toBeGreaterThanOrEqual(12);
      return made;
    }

    /** Every trace that a container could leave. */
    async function traces({ container }: Stage): Promise<string[]> {
      const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
        .split('\n')
        .filter((line) => line.includes(dir));
      const groups = (await cgroups?.list())?.filter((group) => group === container.name) ?? [];
      const state = existsSync(stateDir)
        ? readdirSync(stateDir, { recursive: true })
            .map(String)
            .filter((path) => path.includes(container.name))
        : [];
      return [
        ...mounts,
        ...groups.map((group) => `cgroup ${group}`),
        ...state.map((path) => `state ${path}`),
      ];
    }

    afterEach(async () => {
      for (const { container, close } of stages.splice(0)) {
        await runtime.remove(container.name, container.cgroup);
        await close();
      }
    });
    afterAll(cleanUp);

    it('starts the guest, which dials and says hello', async () => {
      const made = await startedStage();
      const hello = await made.hello;
      expect(hello.readUInt8(4)).toBe(1);
      expect(hello.readUInt32BE(8)).toBe(0);
      expect(await runtime.status(made.container.name)).toBe('running');
      expect(await runtime.list()).toEqual([made.container.name]);
      const inside = await made.container.cgroup.processes();
      expect(inside.length).toBeGreaterThan(0);
      // When the machine has no memory left the process that has the sandbox's is chosen before the server.
      // gVisor's stubs have none of their own.
      expect(Math.max(...inside.map((pid) => oomScore(pid) ?? 0))).toBe(OOM_SCORE);
    });

    it.skipIf(runtime.isolation === 'none')(
      'runs as other ids than its files are stored with, however high and with few open files',
      async () => {
        const own = { hostId: 0x8123_0000, size: 65_536 };
        const { container } = await startedStage({ ids: own, openFiles: 64 });
        const uids = (await container.cgroup.processes()).flatMap(uidsOf);
        expect(uids.filter((uid) => uid < own.hostId || uid >= own.hostId + own.size)).toEqual([]);
        expect(uids).toContain(own.hostId);
      },
    );

    it('remove() leaves no process, cgroup, mount or state', async () => {
      const made = await startedStage();
      const processes = await made.container.cgroup.processes();
      await runtime.remove(made.container.name, made.container.cgroup);
      expect(processes.filter((pid) => isAlive(pid))).toEqual([]);
      expect(await traces(made)).toEqual([]);
      expect(await runtime.status(made.container.name)).toBe('absent');
      expect(await runtime.list()).toEqual([]);
    });

    it('remove() of a container that does not exist is done', async () => {
      const { container } = await stage();
      await runtime.remove(container.name, container.cgroup);
      await runtime.remove(container.name, container.cgroup);
      expect(await runtime.status(container.name)).toBe('absent');
    });

    it('status() is stopped once everything in it was killed, and start() works again', async () => {
      const made = await startedStage();
      await made.container.cgroup.kill();
      expect(await runtime.status(made.container.name)).toBe('stopped');
      const again = once(made.server, 'connection');
      await made.container.cgroup.create({ cpus: null, memoryBytes: 512 * 1024 * 1024, pids: 300 });
      await runtime.start(made.container);
      const [socket] = (await again) as [Socket];
      socket.destroy();
      expect(await runtime.status(made.container.name)).toBe('running');
    });

    it('start() rejects a container that is running and leaves it alone', async () => {
      const { container } = await startedStage();
      await expect(runtime.start(container)).rejects.toMatchObject({ code: 'already_exists' });
      expect(await runtime.status(container.name)).toBe('running');
    });

    it('another runtime object on the same state finds the container and removes it', async () => {
      const made = await startedStage();
      const other = factory({ stateDir, ids });
      expect(await other.list()).toEqual([made.container.name]);
      expect(await other.status(made.container.name)).toBe('running');
      await other.remove(made.container.name, made.container.cgroup);
      expect(await traces(made)).toEqual([]);
    });

    it('start() that fails gives the reason and leaves nothing', async () => {
      const made = await stage({ guestBinary: join(dir, 'no-such-guest') });
      await expect(runtime.start(made.container)).rejects.toMatchObject({
        code: 'unavailable',
        message: expect.stringContaining('no-such-guest'),
      });
      expect(await traces(made)).toEqual([]);
      expect(await runtime.status(made.container.name)).toBe('absent');
    });

    it('starts on a root that is read-only', async () => {
      const { container } = await startedStage({ readOnlyRoot: true });
      expect(await runtime.status(container.name)).toBe('running');
    });

    const { checkpoints } = runtime;
    if (!checkpoints) {
      it.skip(`keeps and revives processes (skipped: ${name} cannot)`, () => {});
      return;
    }

    function imageDir(): string {
      return mkdtempSync(join(dir, 'image-'));
    }

    async function capture(
      made: Stage,
      options: { goOn: boolean; whileStill?: () => Promise<void> },
    ): Promise<string> {
      const image = imageDir();
      await made.deafen();
      await checkpoints!.capture(made.container.name, made.container.cgroup, {
        imageDir: image,
        whileStill: async () => {},
        ...options,
      });
      return image;
    }

    it('capture() writes an image while everything stands still, and the container goes on', async () => {
      const made = await startedStage();
      let still: { image: number; status: string } | undefined;
      const image = imageDir();
      await made.deafen();
      await checkpoints.capture(made.container.name, made.container.cgroup, {
        imageDir: image,
        goOn: true,
        whileStill: async () => {
          still = { image: readdirSync(image).length, status: await runtime.status(made.container.name) };
        },
      });
      expect(still).toMatchObject({ image: expect.any(Number), status: 'running' });
      expect(still!.image).toBeGreaterThan(0);
      await made.listen();
      expect(await runtime.status(made.container.name)).toBe('running');
    });

    it('restore() makes another container of an image, more than once, and all go on', async () => {
      const made = await startedStage();
      const image = await capture(made, { goOn: true });
      for (const child of [await stage(), await stage()]) {
        await checkpoints.restore(child.container, image);
        expect((await child.hello).readUInt8(4)).toBe(1);
        expect(await runtime.status(child.container.name)).toBe('running');
        expect((await child.container.cgroup.processes()).length).toBeGreaterThan(0);
      }
      expect((await runtime.list()).length).toBe(3);
      await made.listen();
    });

    it('capture() ends a container that is not to go on, and what it was can be restored under its own name', async () => {
      const made = await startedStage();
      const image = await capture(made, { goOn: false });
      expect(await made.container.cgroup.processes()).toEqual([]);
      expect(await runtime.status(made.container.name)).toBe('stopped');
      await made.container.cgroup.create({ cpus: null, memoryBytes: 512 * 1024 * 1024, pids: 300 });
      const dialled = made.listen();
      await checkpoints.restore(made.container, image);
      await dialled;
    });

    it('capture() whose files cannot be kept rejects, and the container goes on', async () => {
      const made = await startedStage();
      const whileStill = () => Promise.reject(new Error('no room'));
      await expect(capture(made, { goOn: false, whileStill })).rejects.toMatchObject({
        message: expect.stringContaining('no room'),
      });
      await made.listen();
    });

    it('capture() of a container that is connected to the host rejects with the runtime’s own words, or ends the connection, and both reconnect; and it goes on', async () => {
      const made = await startedStage();
      const connections = () => promisify(made.server.getConnections.bind(made.server))();
      const how = { imageDir: imageDir(), goOn: true, whileStill: async () => {} };
      const error = await checkpoints
        .capture(made.container.name, made.container.cgroup, how)
        .catch((cause: unknown) => cause);
      if (error !== undefined) {
        expect(error).toMatchObject({
          code: 'unavailable',
          message: expect.stringContaining(`${name} says`),
        });
      } else {
        const child = await stage();
        await checkpoints.restore(child.container, how.imageDir);
        expect((await child.hello).readUInt8(4)).toBe(1);
      }
      // Where it has ended, no process inside has noticed: the guest has a timeout for the greeting.
      await expect.poll(connections, { timeout: 20_000 }).toBe(1);
      expect(await runtime.status(made.container.name)).toBe('running');
      await made.deafen();
      await made.listen();
    });

    it('capture() of a container that does not exist rejects', async () => {
      const { container } = await stage();
      const how = { imageDir: imageDir(), goOn: true, whileStill: async () => {} };
      await expect(checkpoints.capture(container.name, container.cgroup, how)).rejects.toMatchObject({
        code: 'unavailable',
      });
    });

    it('restore() from what is no image gives the reason and leaves nothing', async () => {
      const made = await stage();
      await expect(checkpoints.restore(made.container, imageDir())).rejects.toMatchObject({
        code: 'unavailable',
      });
      expect(await traces(made)).toEqual([]);
    });

    it('release() lets go on what a capture has left standing still, and what runs is done', async () => {
      const made = await startedStage();
      const { promise: still, resolve } = Promise.withResolvers<void>();
      // As if the server had been killed there.
      const whileStill = () => new Promise<never>(() => resolve());
      void capture(made, { goOn: true, whileStill });
      await still;
      const other = factory({ stateDir, ids }).checkpoints!;
      await other.release(made.container.name);
      await made.listen();
      await other.release(made.container.name);
      expect(await runtime.status(made.container.name)).toBe('running');
    });

    it('compatibility() says the same each time', async () => {
      const text = await checkpoints.compatibility();
      expect(text).toMatch(/^\S+ \S+/);
      expect(await factory({ stateDir, ids }).checkpoints!.compatibility()).toBe(text);
    });
  });
}

/** Real, effective, saved and of the filesystem. */
function uidsOf(pid: number): number[] {
  const line = /^Uid:\s+(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
  return line.split(/\s+/).map(Number);
}

/** A container that is ready to be started, with a server that awaits its guest. */
export async function makeStage({
  dir,
  name,
  ids,
  cgroups,
  changes,
}: {
  dir: string;
  name: string;
  ids: IdMapping;
  cgroups: Cgroups;
  changes: Partial<Container>;
}): Promise<Stage> {
  const rootDir = join(dir, 'root');
  const socketDir = join(dir, 'socket');
  const bundleDir = join(dir, 'bundle');
  for (const path of [rootDir, socketDir, bundleDir]) mkdirSync(path, { recursive: true });
  for (const path of ['', 'proc', 'sys', 'dev', 'run', 'tmp', 'usr', 'root']) {
    mkdirSync(join(rootDir, path), { recursive: true });
    chownSync(join(rootDir, path), ids.hostId, ids.hostId);
  }
  for (const link of ['bin', 'sbin', 'lib', 'lib64']) {
    if (lstatSync(`/${link}`, { throwIfNoEntry: false })?.isSymbolicLink())
      symlinkSync(readlinkSync(`/${link}`), join(rootDir, link));
  }
  const server = createServer();
  const path = join(socketDir, 'guest.sock');
  const open = async () => {
    server.listen(path);
    await once(server, 'listening');
    const { hostId } = changes.ids ?? ids;
    for (const owned of [socketDir, path]) chownSync(owned, hostId, hostId);
  };
  chmodSync(socketDir, 0o700);
  await open();
  const sockets: Socket[] = [];
  server.on('connection', (socket) => {
    socket.on('error', () => {});
    sockets.push(socket);
  });
  const hello = once(server, 'connection').then(
    async ([socket]) => ((await once(socket as Socket, 'data')) as [Buffer])[0],
  );
  hello.catch(() => {});
  const cgroup = cgroups.group(name);
  await cgroup.create({ cpus: null, memoryBytes: 512 * 1024 * 1024, pids: 300 });
  const container: Container = {
    name,
    bundleDir,
    rootDir,
    readOnlyRoot: false,
    socketDir,
    guestBinary: GUEST_BINARY,
    binds: [{ source: '/usr', target: '/usr', readOnly: true }],
    cgroup,
    hostname: name,
    openFiles: 65_536,
    ...changes,
  };
  const close = async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    if (!server.listening) return;
    server.close();
    await once(server, 'close');
  };
  const deafen = async () => {
    rmSync(path, { force: true });
    await Promise.all(sockets.filter((socket) => !socket.destroyed).map(hangUp));
    await close();
  };
  const listen = async () => {
    const dialled = once(server, 'connection');
    await open();
    await dialled;
  };
  return { container, server, hello, listen, deafen, close };
}

/**
 * Asks the guest to close the connection; who closes it ourselves does not know when the guest has noticed.
 */
async function hangUp(socket: Socket): Promise<void> {
  const closed = once(socket, 'close');
  for (const [type, message] of [
    [FRAME.hello, { protocol: PROTOCOL, sandbox: 'suite', incarnation: 1 }],
    [FRAME.hangup, { dialAfterMs: 2 }],
  ] as const) {
    const payload = encodeCbor(message);
    const header = Buffer.alloc(HEADER_BYTES);
    writeHeader(header, 0, { length: payload.length, type, channel: 0, stream: 0 });
    socket.write(Buffer.concat([header, payload]));
  }
  socket.resume();
  await closed;
}
