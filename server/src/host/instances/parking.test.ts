import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { GuestClient } from '../../guest/guest-client.ts';
import type { Cgroup, CgroupReading } from '../cgroups/cgroup.ts';
import { parking } from './parking.ts';

const OPTIONS = { idleMs: 40, busyMs: 40 };

/** A sandbox whose kernel always uses the processor, or never. */
function world({ busyKernel = true, processes = 0 } = {}) {
  const changes: string[] = [];
  const begun = performance.now();
  const cgroup = {
    read: async () =>
      ({ cpuUsageMs: busyKernel ? (performance.now() - begun) / 10 : 5 }) as unknown as CgroupReading,
    freeze: async () => void changes.push('frozen'),
    thaw: async () => void changes.push('thawed'),
  } as unknown as Cgroup;
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  const connection = {
    error: undefined as unknown,
    streams: 0,
    beforeSend: undefined as ((isAside: boolean) => void) | undefined,
  };
  const inside = { processes, oomKills: 3, asked: 0 };
  const client = {
    connection,
    closed,
    async stats({ aside = false } = {}) {
      inside.asked++;
      connection.beforeSend?.(aside);
      return { ...inside };
    },
  } as unknown as GuestClient;
  const subject = parking(cgroup, OPTIONS);
  subject.watch(client);
  const isParked = () => expect.poll(() => subject.parked, { interval: 2 }).toBeDefined();
  return { subject, changes, connection, close, inside, client, isParked };
}

describe('parking', () => {
  it('freezes an idle sandbox whose kernel uses the processor, and continues it before the next frame', async () => {
    const { subject, changes, connection, isParked } = world();
    await isParked();
    expect(changes).toEqual(['frozen']);
    expect(subject.parked).toMatchObject({ processes: 0, oomKills: 3 });
    connection.beforeSend!(false);
    expect(changes).toEqual(['frozen', 'thawed']);
    expect(subject.parked).toBeUndefined();
    await isParked();
  });

  it('leaves one alone whose kernel uses nothing, and does not look at it again', async () => {
    const { subject, changes, inside } = world({ busyKernel: false });
    await sleep(300);
    expect([changes, inside.asked, subject.parked]).toEqual([[], 0, undefined]);
  });

  it('leaves one alone in which a process runs, until it has ended', async () => {
    const { changes, inside, isParked } = world({ processes: 1 });
    await expect.poll(() => inside.asked).toBeGreaterThan(1);
    expect(changes).toEqual([]);
    inside.processes = 0;
    await isParked();
  });

  it('leaves one alone that is called now and then, or has a stream', async () => {
    const { changes, connection } = world();
    for (let turn = 0; turn < 20; turn++) {
      await sleep(10);
      connection.beforeSend!(false);
    }
    expect(changes).toEqual([]);
    connection.streams = 1;
    await sleep(200);
    expect(changes).toEqual([]);
  });

  it('does not count questions that are asked aside, and continues for them', async () => {
    const { changes, client, isParked } = world();
    const timer = setInterval(() => void client.stats({ aside: true }), 5);
    await expect.poll(() => changes.filter((change) => change === 'frozen').length).toBeGreaterThan(1);
    clearInterval(timer);
    await isParked();
    expect(changes).toContain('thawed');
  });

  it('continues one that is held, and does not park it before it is released', async () => {
    const { subject, changes, isParked } = world();
    await isParked();
    subject.hold();
    expect(changes).toEqual(['frozen', 'thawed']);
    await sleep(200);
    expect(subject.parked).toBeUndefined();
    subject.release();
    await isParked();
  });

  it('continues one whose connection is lost, so that it can dial again', async () => {
    const { subject, changes, connection, close, client, isParked } = world();
    await isParked();
    connection.error = new Error('lost');
    close();
    await expect.poll(() => changes).toEqual(['frozen', 'thawed']);
    await sleep(200);
    expect(subject.parked).toBeUndefined();
    connection.error = undefined;
    subject.watch(client);
    await isParked();
  });
});
