import { expect } from 'vitest';
import { gather, noise, until, within, type Box } from './box.ts';
import { holdCounter, startCounter } from './counter.ts';
import { echoServer } from './ports.ts';
import { hasProgram, rejects, type Suite } from './suite.ts';

const CHILDREN = 3;

/** Answers each line with numbers that must never come twice, and with what its clocks say. */
const ORACLE = `
import os, secrets, sys, time, uuid
urandom = open("/dev/urandom", "rb", 0)
for line in sys.stdin:
    print(urandom.read(16).hex(), os.getrandom(16).hex(), secrets.token_hex(16), uuid.uuid4().hex, time.time(), time.monotonic(), flush=True)
`;

interface Answer {
  numbers: string[];
  wallMs: number;
  monotonicMs: number;
}

/** Attaches to the oracle and reads the answer of that number, the first being 1. */
async function oracle(box: Box, id: string, nth: number): Promise<Answer> {
  const handle = await box.guest.attach(id);
  await handle.write(Buffer.from('\n'));
  let text = '';
  for await (const chunk of handle.output) {
    if (chunk.channel === 'stdout') text += Buffer.from(chunk.data).toString();
    if (text.split('\n').length > nth) break;
  }
  const words = text.split('\n')[nth - 1]!.split(' ');
  return {
    numbers: words.slice(0, 4),
    wallMs: Number(words[4]) * 1000,
    monotonicMs: Number(words[5]) * 1000,
  };
}

export function forkCases(suite: Suite): void {
  const children = (snapshot: `snap_${string}`, count = CHILDREN) =>
    Promise.all(Array.from({ length: count }, () => suite.clone(snapshot, undefined, { memory: true })));

  suite.case('a clone with memory that is started with it goes on at once', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const counter = await startCounter(box);
    expect((await counter.ask('one')).count).toBe(1);
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const id = suite.id();
    const made = await suite.snapshots.clone(id, suite.spec(), snapshot, { memory: true, start: true });
    expect(made).toMatchObject({ id, phase: 'ready', incarnation: 1 });
    const child = await holdCounter((await suite.wake(id)).guest, counter);
    expect((await child.ask('two')).count).toBe(2);
  });

  suite.case('a snapshot with memory tells so, and the sandbox goes on', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const counter = await startCounter(box);
    const first = await counter.ask('one');
    const snapshot = suite.snapshotId();
    const facts = await suite.snapshots.snapshot(box.id, snapshot, { memory: true });
    const { runtime } = await suite.backend.observe(box.id);
    expect(facts).toMatchObject({ id: snapshot, sandbox: box.id, memory: true, runtime });
    expect((await suite.snapshots.snapshots()).find(({ id }) => id === snapshot)).toMatchObject({
      memory: true,
      runtime,
    });
    expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    const again = await holdCounter(await suite.backend.connect(box.id), counter);
    expect(await again.ask('two')).toEqual({ count: 2, pid: first.pid });
  });

  suite.case(
    'the calls and the readers of a sandbox go on through a snapshot with memory',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      const ran = box.run('i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.03; done');
      const content = noise(4_000_000);
      const written = box.write('big', content);
      const short = Array.from({ length: 10 }, (_, at) => box.run(`echo ${at}`));
      const taking = suite.snapshot(box.id, { memory: true });
      const later = Array.from({ length: 10 }, (_, at) => box.run(`echo ${at}`));
      await taking;
      expect((await Promise.all([...short, ...later])).map((each) => each.stdout)).toEqual(
        [0, 1].flatMap(() => Array.from({ length: 10 }, (_, at) => `${at}\n`)),
      );
      expect((await box.read(await written)).equals(content)).toBe(true);
      const { stdout, exitCode } = await within(15_000, 'the command', ran);
      expect(exitCode).toBe(0);
      expect(stdout).toBe(Array.from({ length: 20 }, (_, at) => `${at + 1}\n`).join(''));
    },
  );

  suite.case(
    'processes go on in every child from where they were, and in the parent',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      const counter = await startCounter(box);
      const first = await counter.ask('one');
      const snapshot = await suite.snapshot(box.id, { memory: true });
      const parent = await holdCounter(await suite.backend.connect(box.id), counter);
      expect((await parent.ask('parent')).count).toBe(2);
      expect((await parent.ask('again')).count).toBe(3);
      for (const child of await children(snapshot)) {
        const held = await holdCounter(child.guest, counter);
        expect(await held.ask('child')).toEqual({ count: 2, pid: first.pid });
        expect((await child.read(`${box.dir}/counted`)).toString()).toBe('1\n2\n');
      }
      expect((await parent.ask('last')).count).toBe(4);
    },
  );

  suite.case('a child is hibernated until it is ensured', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const id = suite.id();
    expect(await suite.snapshots.clone(id, suite.spec(), snapshot, { memory: true })).toMatchObject({
      id,
      phase: 'hibernated',
    });
    expect(await suite.snapshots.clone(id, suite.spec(), snapshot, { memory: true })).toMatchObject({
      id,
      phase: 'hibernated',
    });
    await rejects(suite.backend.connect(id), 'failed_precondition');
    expect((await suite.backend.ensure(id, suite.spec())).phase).toBe('ready');
    const files = suite.id();
    expect(await suite.snapshots.clone(files, suite.spec(), snapshot)).toMatchObject({ phase: 'stopped' });
    expect((await (await suite.wake(files)).run(['true'])).exitCode).toBe(0);
  });

  suite.case('children have their own names', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const boxes = [await suite.wake(box.id), ...(await children(snapshot))];
    const names = await Promise.all(
      boxes.map(async (each) => (await each.run('cat /proc/sys/kernel/hostname')).stdout.trim()),
    );
    expect(names.every((name) => name !== '')).toBe(true);
    expect(new Set(names).size, names.join(' ')).toBe(boxes.length);
  });

  suite.case('no child draws a number that another has drawn', ['memorySnapshots'], async ({ skip }) => {
    const box = await suite.box();
    if (!(await hasProgram(box, 'python3'))) return skip('the image has no python3 that could draw');
    const { id } = await box.start(['python3', '-c', ORACLE], { stdin: true });
    await oracle(box, id, 1);
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const boxes = [await suite.wake(box.id), ...(await children(snapshot))];
    const drawn = await Promise.all(boxes.map((each) => oracle(each, id, 2)));
    const fresh = await Promise.all(
      boxes.map(
        async (each) =>
          (await each.run('od -An -N16 -tx1 /dev/urandom; cat /proc/sys/kernel/random/uuid')).stdout,
      ),
    );
    const numbers = [
      ...drawn.flatMap((each) => each.numbers),
      ...fresh.flatMap((text) => text.trim().split('\n')),
    ];
    expect(numbers.every((number) => number.length >= 32)).toBe(true);
    expect(new Set(numbers).size).toBe(numbers.length);
  });

  suite.case("a child's clocks are right, and none goes backwards", ['memorySnapshots'], async ({ skip }) => {
    const box = await suite.box();
    if (!(await hasProgram(box, 'python3'))) return skip('the image has no python3 that could tell the time');
    const { id } = await box.start(['python3', '-c', ORACLE], { stdin: true });
    const before = await oracle(box, id, 1);
    const snapshot = await suite.snapshot(box.id, { memory: true });
    await new Promise((resolve) => setTimeout(resolve, 1200));
    for (const each of [await suite.wake(box.id), ...(await children(snapshot, 2))]) {
      const asked = Date.now();
      const after = await oracle(each, id, 2);
      const answered = Date.now();
      expect(after.monotonicMs).toBeGreaterThanOrEqual(before.monotonicMs);
      expect(after.wallMs).toBeGreaterThan(asked - 1000);
      expect(after.wallMs).toBeLessThan(answered + 1000);
      const fresh = Number((await each.run(['date', '+%s%3N'])).stdout);
      expect(Math.abs(fresh - Date.now())).toBeLessThan(1000);
    }
  });

  suite.case("neither parent nor child sees the other's later writes", ['memorySnapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'common');
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const parent = await suite.wake(box.id);
    await parent.write(path, 'parent');
    const [one, other] = await children(snapshot, 2);
    await one!.write(path, 'one');
    await one!.run(`echo x > ${box.dir}/own; echo x > /tmp/own`);
    expect((await other!.read(path)).toString()).toBe('common');
    expect((await other!.run(`ls ${box.dir}/own /tmp/own`)).exitCode).not.toBe(0);
    expect((await parent.read(path)).toString()).toBe('parent');
    await suite.backend.remove(parent.id);
    expect((await one!.read(path)).toString()).toBe('one');
  });

  suite.case('a server inside listens in every child', ['memorySnapshots', 'ports'], async (context) => {
    const box = await suite.box();
    const { port } = await echoServer(suite, box, context);
    const snapshot = await suite.snapshot(box.id, { memory: true });
    for (const each of [await suite.wake(box.id), ...(await children(snapshot, 2))]) {
      await until('the port is told', async () =>
        (await each.guest.ports.list()).some((listening) => listening.port === port),
      );
      const connection = await each.guest.ports.connect(port);
      await connection.write(Buffer.from(each.id));
      await connection.end();
      expect((await within(5000, 'the echo', gather(connection.readable))).toString()).toBe(each.id);
    }
  });

  suite.case('a child can be kept and forked itself, with its memory', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const counter = await startCounter(box);
    await counter.ask('one');
    const [child] = await children(await suite.snapshot(box.id, { memory: true }), 1);
    expect((await (await holdCounter(child!.guest, counter)).ask('two')).count).toBe(2);
    const second = await suite.snapshot(child!.id, { memory: true });
    await suite.backend.remove(child!.id);
    const [grandchild] = await children(second, 1);
    expect((await (await holdCounter(grandchild!.guest, counter)).ask('three')).count).toBe(3);
  });

  suite.case('a rollback with memory has the processes where they were', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const path = await box.write('note', 'then');
    const counter = await startCounter(box);
    const first = await counter.ask('one');
    const snapshot = await suite.snapshot(box.id, { memory: true });
    const later = await suite.wake(box.id);
    await (await holdCounter(later.guest, counter)).ask('two');
    await later.write(path, 'later');
    const after = await suite.snapshots.rollback(box.id, snapshot, { memory: true });
    expect(after.phase).toBe('ready');
    expect(after.incarnation).toBeGreaterThan(1);
    const back = await suite.wake(box.id);
    expect((await back.read(path)).toString()).toBe('then');
    expect(await (await holdCounter(back.guest, counter)).ask('two')).toEqual({ count: 2, pid: first.pid });
    await suite.backend.stop(box.id, { graceMs: 100 });
    expect((await suite.snapshots.rollback(box.id, snapshot, { memory: true })).phase).toBe('hibernated');
    expect(await (await holdCounter((await suite.wake(box.id)).guest, counter)).ask('two')).toEqual({
      count: 2,
      pid: first.pid,
    });
    await suite.snapshots.rollback(box.id, snapshot);
    expect(await (await suite.wake(box.id)).guest.commands()).toEqual([]);
  });

  suite.case(
    'what is hibernated can be kept with its memory, and what is stopped cannot',
    ['memorySnapshots'],
    async () => {
      const box = await suite.box();
      const counter = await startCounter(box);
      await counter.ask('one');
      await suite.backend.ability('memorySnapshots')?.hibernate(box.id);
      const snapshot = await suite.snapshot(box.id, { memory: true });
      expect((await suite.backend.observe(box.id)).phase).toBe('hibernated');
      const [child] = await children(snapshot, 1);
      expect((await (await holdCounter(child!.guest, counter)).ask('two')).count).toBe(2);
      await suite.backend.stop(box.id, { graceMs: 100 });
      const none = suite.snapshotId();
      await rejects(suite.snapshots.snapshot(box.id, none, { memory: true }), 'failed_precondition');
      expect((await suite.snapshots.snapshots()).map(({ id }) => id)).not.toContain(none);
    },
  );

  suite.case('a child has the limits of its own spec', ['memorySnapshots', 'memoryLimit'], async () => {
    const box = await suite.box();
    const counter = await startCounter(box);
    await counter.ask('one');
    const memoryBytes = 640 * 1024 * 1024;
    const child = await suite.clone(
      await suite.snapshot(box.id, { memory: true }),
      { limits: { memoryBytes } },
      { memory: true },
    );
    expect((await suite.backend.stats(child.id)).memoryLimitBytes).toBe(memoryBytes);
    expect((await (await holdCounter(child.guest, counter)).ask('two')).count).toBe(2);
  });

  suite.case('what cannot be kept goes on as it was', ['memorySnapshots'], async ({ skip }) => {
    const box = await suite.box();
    // An open file without a name has no place in any tree.
    const held = await box.start(`exec 3>${box.dir}/gone; rm ${box.dir}/gone; echo ready; exec sleep 60`);
    for await (const _ of held.output) break;
    const snapshot = suite.snapshotId();
    const refused = await suite.snapshots.snapshot(box.id, snapshot, { memory: true }).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (refused === undefined) return skip('this isolation keeps open files that have no name');
    expect(refused).toMatchObject({ code: 'failed_precondition' });
    expect(await suite.snapshots.snapshots()).toEqual([]);
    const hibernating = suite.backend.ability('memorySnapshots');
    if (hibernating) await rejects(hibernating.hibernate(box.id), 'failed_precondition');
    expect(await suite.backend.observe(box.id)).toMatchObject({ phase: 'ready', incarnation: 1 });
    const still = (await box.guest.commands()).find(({ id }) => id === held.id);
    expect(still).toMatchObject({ pid: held.pid });
    expect(still?.end).toBeUndefined();
    await suite.snapshots.snapshot(box.id, snapshot);
    expect((await suite.clone(snapshot)).id).not.toBe(box.id);
  });

  suite.case('memory cannot be had from a snapshot of files', ['memorySnapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id);
    const id = suite.id();
    await rejects(suite.snapshots.clone(id, suite.spec(), snapshot, { memory: true }), 'failed_precondition');
    expect((await suite.backend.observe(id)).phase).toBe('absent');
    await rejects(suite.snapshots.rollback(box.id, snapshot, { memory: true }), 'failed_precondition');
    expect((await box.run(['true'])).exitCode).toBe(0);
  });

  suite.case(
    'several sandboxes are kept with their memory at once',
    ['memorySnapshots'],
    async () => {
      const boxes = await Promise.all(Array.from({ length: 3 }, () => suite.box()));
      const counts = await Promise.all(
        boxes.map(async (box, at) => {
          const counter = await startCounter(box);
          for (let asked = 0; asked <= at; asked++) await counter.ask(`line ${asked}`);
          const [child] = await children(await suite.snapshot(box.id, { memory: true }), 1);
          return (await (await holdCounter(child!.guest, counter)).ask('child')).count;
        }),
      );
      expect(counts).toEqual([2, 3, 4]);
    },
    60_000,
  );
}
