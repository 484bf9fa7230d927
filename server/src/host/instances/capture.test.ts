/** Memory and files of real programs at one moment, on a real machine. */
import { existsSync } from 'node:fs';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isCayError } from '@cay/sdk/protocol';
import { captureInstance } from './capture.ts';
import {
  adoptInstance,
  destroyInstance,
  freezeInstance,
  isAlive,
  type Instance,
  type InstanceLimits,
} from './instance.ts';
import { reviveInstance } from './revive.ts';
import {
  instanceResources,
  LIMITS,
  request,
  run,
  whyNoInstances,
  type InstanceResources,
} from './testing/instance-resources.ts';

const MiB = 1024 * 1024;
const reason = await whyNoInstances('runsc');
if (reason) console.warn(`Memory of instances (skipped: ${reason})`);

/** Writes each number that it counts to the end of a file. */
const COUNTER = `
import os, time
f = os.open('/root/count', os.O_WRONLY | os.O_CREAT)
i = 0
while True:
    i += 1
    os.write(f, b'%011d\\n' % i)
    if i % 64 == 0: time.sleep(0.001)
`;

/** Whether every number is there once, and in its place. */
const CHECK = `python3 -c "
import os, signal
os.kill(int(os.popen('pgrep -of os.O_CREAT').read()), signal.SIGSTOP)
data = open('/root/count', 'rb').read()
print(data == b''.join(b'%011d\\n' % (i + 1) for i in range(len(data) // 12)), len(data) // 12)
"`;

/** A database, threads and a loopback socket, asked over standard input. */
const PROGRAM = `
import os, socket, sqlite3, sys, threading, time
db = sqlite3.connect('/root/data.db', isolation_level=None, check_same_thread=False)
db.execute('pragma journal_mode=wal')
db.execute('create table t (n integer primary key)')
memory = 0
lock = threading.Lock()
def grow():
    global memory
    while True:
        with lock:
            db.execute('insert into t values (?)', (memory,))
            memory += 1
        time.sleep(0.0005)
for _ in range(3): threading.Thread(target=grow, daemon=True).start()
server = socket.create_server(('127.0.0.1', 7000))
def serve():
    while True:
        one, _ = server.accept()
        threading.Thread(target=lambda: [one.sendall(one.recv(64).upper()) for _ in range(9)], daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(('127.0.0.1', 7000))
print('ready', flush=True)
for line in sys.stdin:
    with lock:
        rows, top = db.execute('select count(*), max(n) from t').fetchone()
        client.sendall(b'ping')
        print(memory, rows, top + 1, client.recv(64).decode(), os.getrandom(8).hex(), open('/dev/urandom', 'rb').read(8).hex(), time.monotonic(), time.time(), flush=True)
`;

describe.skipIf(reason !== undefined)(
  `memory of instances${reason ? ` (skipped: ${reason})` : ''}`,
  { timeout: 120_000 },
  () => {
    let at: InstanceResources;
    let snapshots = 0;
    beforeAll(async () => {
      at = await instanceResources('runsc');
    }, 60_000);
    afterAll(() => at.end(), 60_000);

    /** Captures, and gives what children are made of. */
    async function capture(instance: Instance, goOn = true) {
      const imageDir = await at.imageDir();
      const tree = `snapshot-${++snapshots}`;
      const whileStill = () => at.resources.trees.commit(tree, instance.facts.tree);
      await captureInstance(at.resources, instance, { imageDir, goOn, whileStill });
      return {
        imageDir,
        child: async (limits: InstanceLimits = LIMITS) =>
          at.keep(await reviveInstance(at.resources, await at.plan(tree), limits, imageDir)),
      };
    }

    /** A command that answers each line that it is sent with one. */
    async function dialogue(instance: Instance, id: string, offset = 0) {
      const handle = await instance.link.guest.attach(id, { offset });
      const chunks = handle.output[Symbol.asyncIterator]();
      let text = '';
      let position = offset;
      return {
        get position() {
          return position;
        },
        async line(send?: string): Promise<string> {
          if (send !== undefined) await handle.write(Buffer.from(send));
          while (!text.includes('\n')) {
            const { value } = await chunks.next();
            if (!value) throw new Error('the command has ended');
            if (value.channel === 'gap') throw new Error('output is missing');
            text += Buffer.from(value.data).toString();
            position += value.data.length;
          }
          const end = text.indexOf('\n');
          const line = text.slice(0, end);
          text = text.slice(end + 1);
          return line.trim();
        },
      };
    }

    it('lets a program with threads, a database and sockets go on in parent and children, memory and files of one moment', async () => {
      const parent = await at.start();
      const { id } = await parent.link.guest.exec(
        request('', { shell: undefined, argv: ['python3', '-c', PROGRAM], stdin: true }),
      );
      const there = await dialogue(parent, id);
      expect(await there.line()).toBe('ready');
      const before = (await there.line('\n')).split(' ');
      const image = await capture(parent);
      const children = [await image.child(), await image.child()];
      const said: string[][] = [];
      for (const child of children)
        said.push((await (await dialogue(child, id, there.position)).line('\n')).split(' '));
      said.push((await there.line('\n')).split(' '));
      for (const [memory, rows, next, echo] of said) {
        expect({ rows, next, echo }).toEqual({ rows: memory, next: memory, echo: 'PING' });
      }
      expect(new Set(said.flatMap((words) => [words[4], words[5]])).size).toBe(6);
      for (const words of said) {
        expect(Number(words[6])).toBeGreaterThan(Number(before[6]));
        expect(Math.abs(Number(words[7]) * 1000 - Date.now())).toBeLessThan(60_000);
      }
      await Promise.all([...children, parent].map((instance) => destroyInstance(at.resources, instance)));
    });

    it('keeps memory and files of exactly one moment, however fast they change', async () => {
      const parent = await at.start();
      await parent.link.guest.exec(request('', { shell: undefined, argv: ['python3', '-c', COUNTER] }));
      const count = join(await at.root(parent), 'root/count');
      await expect
        .poll(async () => (await stat(count).catch(() => undefined))?.size ?? 0, { timeout: 20_000 })
        .toBeGreaterThan(1000);
      for (let round = 0; round < 3; round++) {
        const image = await capture(parent);
        const atCapture =
          (await stat(join(await at.resources.trees.committedPath(`snapshot-${snapshots}`), 'root/count')))
            .size / 12;
        const child = await image.child();
        // Had the file been older or newer than the memory, the child would have left a gap or counted
        // something twice.
        const [whole, numbers] = (await run(child, CHECK)).split(' ');
        expect(whole).toBe('True');
        expect(Number(numbers)).toBeGreaterThanOrEqual(atCapture);
        await destroyInstance(at.resources, child);
      }
      expect(await run(parent, CHECK)).toMatch(/^True /);
      await destroyInstance(at.resources, parent);
    });

    it('gives each child its own hostname and limits, and its terminal where it was', async () => {
      const parent = await at.start();
      const pty = request('', {
        shell: undefined,
        argv: ['bash', '--norc', '--noediting', '-i'],
        pty: { cols: 80, rows: 24 },
        env: { PS1: '' },
      });
      const handle = await parent.link.guest.exec(pty);
      await handle.write(Buffer.from('kept=in-memory; stty -echo; echo is $kept\n'));
      const terminal = await dialogue(parent, pty.id);
      while (!(await terminal.line()).includes('is in-memory')) continue;
      const image = await capture(parent, false);
      expect(await isAlive(at.resources, parent.facts)).toBe(false);
      const child = await image.child({ ...LIMITS, memoryBytes: 128 * MiB });
      expect(await run(child, 'hostname')).toBe(child.facts.name);
      expect(await run(child, 'grep CapEff /proc/self/status; hostname other 2>&1')).toMatch(
        /00000000000405fb[^]*(not permitted|must be root)/,
      );
      expect((await child.link.current!.stats()).memoryTotalBytes).toBe(128 * MiB);
      const again = await dialogue(child, pty.id, terminal.position);
      expect(await again.line('echo was $kept\n')).toContain('was in-memory');
      const greedy = await child.link.guest.exec(request('tail /dev/zero'));
      expect(await greedy.ended).toEqual({ kind: 'oom_killed' });
      await destroyInstance(at.resources, child);
    });

    it('finishes calls under way, has others wait, and leaves the instance as it was when the files cannot be kept', async () => {
      const parent = await at.start();
      const files = parent.link.guest.files('root');
      async function* slowly() {
        for (let index = 0; index < 5; index++) {
          yield Buffer.from('slow ');
          await new Promise((resolve) => setTimeout(resolve, 40));
        }
      }
      const writing = files.write('/root/slow', slowly());
      let meanwhile: Promise<unknown> | undefined;
      const whileStill = async () => {
        meanwhile = files.stat('/root/slow');
        throw new Error('no more room for trees');
      };
      const capturing = captureInstance(at.resources, parent, {
        imageDir: await at.imageDir(),
        goOn: false,
        whileStill,
      });
      await expect(capturing).rejects.toMatchObject({
        message: expect.stringContaining('no more room for trees'),
      });
      expect(await writing).toMatchObject({ sizeBytes: 25 });
      expect(await meanwhile).toMatchObject({ sizeBytes: 25 });
      expect(await run(parent, 'cat /root/slow')).toBe('slow slow slow slow slow');
      await destroyInstance(at.resources, parent);
    });

    it('keeps a deleted file that a process holds open, or says which it is; and lets the instance go on', async () => {
      const parent = await at.start();
      const program = [
        'import os, time',
        'file = open("/root/gone", "w+"); file.write("kept"); file.flush(); os.unlink("/root/gone")',
        'open("/root/ready", "w")',
        'while not os.path.exists("/root/go"): time.sleep(0.05)',
        'file.seek(0); text = file.read()',
        'open("/root/result", "w").write(text)',
      ].join('\n');
      await parent.link.guest.exec(request('', { shell: undefined, argv: ['python3', '-c', program] }));
      await expect.poll(() => run(parent, 'ls /root/ready'), { timeout: 10_000 }).toBe('/root/ready');
      const image = await capture(parent).catch((cause: unknown) => cause as Error);
      const alive = [parent];
      if (image instanceof Error)
        expect(isCayError(image, 'failed_precondition') && image.details).toEqual({
          reason: 'deleted_file_open',
          path: '/root/gone',
        });
      else alive.push(await image.child());
      for (const instance of alive) {
        await run(instance, 'touch /root/go');
        await expect.poll(() => run(instance, 'cat /root/result'), { timeout: 10_000 }).toBe('kept');
        await destroyInstance(at.resources, instance);
      }
    });

    it('captures a frozen instance, which is frozen afterwards', async () => {
      const parent = await at.start();
      await freezeInstance(parent, true);
      const image = await capture(parent);
      expect(parent.frozen).toBe(true);
      const child = await image.child();
      expect(await run(child, 'echo awake')).toBe('awake');
      await freezeInstance(parent, false);
      expect(await run(parent, 'echo awake')).toBe('awake');
      await Promise.all([parent, child].map((instance) => destroyInstance(at.resources, instance)));
    });

    it('a server that comes after one that was killed while all stood still lets the instance go on', async () => {
      const parent = await at.start();
      const { promise: killed, resolve: kill } = Promise.withResolvers<void>();
      const { promise: still, resolve: stands } = Promise.withResolvers<void>();
      const whileStill = async () => {
        stands();
        await killed;
        throw new Error('killed');
      };
      const capturing = captureInstance(at.resources, parent, {
        imageDir: await at.imageDir(),
        goOn: true,
        whileStill,
      });
      capturing.catch(() => {});
      await still;
      const next = at.keep(await adoptInstance(at.resources, parent.facts, LIMITS));
      expect(await run(next, 'echo on')).toBe('on');
      kill();
      await expect(capturing).rejects.toMatchObject({ code: 'unavailable' });
      expect(await run(next, 'echo still on')).toBe('still on');
      await destroyInstance(at.resources, next);
    });

    it('so does a capture after one that was killed before its end was recorded', async () => {
      const parent = await at.start();
      const file = join(at.resources.dir, 'runtimes/runsc', `${parent.facts.name}.unsure`);
      await parent.link.close();
      await writeFile(file, '');
      const next = at.keep(await adoptInstance(at.resources, parent.facts, LIMITS));
      expect(await run(next, 'echo on')).toBe('on');
      expect(existsSync(file)).toBe(false);
      await destroyInstance(at.resources, next);
    });

    it('reviving from an image that is not whole takes everything away again but the tree', async () => {
      const facts = await at.plan();
      await expect(reviveInstance(at.resources, facts, LIMITS, await at.imageDir())).rejects.toMatchObject({
        code: 'unavailable',
      });
      expect(await at.runtime.list()).not.toContain(facts.name);
      expect(await readdir(join(at.resources.dir, 'instances'))).not.toContain(facts.name);
      expect(await at.resources.cgroups.list()).not.toContain(facts.name);
      expect(await readdir(await at.resources.trees.path(facts.tree))).toContain('etc');
    });
  },
);
