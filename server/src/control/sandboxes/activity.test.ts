import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openClock } from '../../lib/clock.ts';
import { openActivity, type Activity } from './activity.ts';
import { trackedGuest } from './tracked-guest.ts';
import { asked, installation, memoryBackend } from '../testing/test-control.ts';

let activity: Activity;
let saved: Map<string, number>[];
let nowMs: number;
beforeEach(() => {
  saved = [];
  nowMs = 1000;
  activity = openActivity({
    save: async (used) => void saved.push(new Map(used)),
    clock: openClock({ now: () => nowMs, monotonic: () => nowMs }),
    onError: (error) => expect.unreachable(String(error)),
  });
});
afterEach(() => activity.close());

describe('activity', () => {
  it('counts each use until it is over, once', () => {
    const command = activity.enter('a', 'command')!;
    const client = activity.hold('a', 'client');
    expect([
      activity.count('a', 'command'),
      activity.count('a', 'command', 'client'),
      activity.count('b', 'command'),
    ]).toEqual([1, 2, 0]);
    command[Symbol.dispose]();
    command[Symbol.dispose]();
    expect(activity.count('a', 'command', 'client')).toBe(1);
    client[Symbol.dispose]();
    expect(activity.count('a', 'command', 'client')).toBe(0);
  });

  it('waits until there are no uses of a kind, or until the time is up', async () => {
    const command = activity.enter('a', 'command')!;
    using _ = activity.hold('a', 'client');
    expect(await activity.waitUntilNone('a', ['command'], 0)).toBe(false);
    expect(await activity.waitUntilNone('a', ['command'], 5)).toBe(false);
    const quiet = activity.waitUntilNone('a', ['command'], 60_000);
    command[Symbol.dispose]();
    expect(await quiet).toBe(true);
  });

  it('keeps new calls out while the gate is closed, and not those that are inside', async () => {
    const before = activity.epoch('a');
    const open = Promise.withResolvers<void>();
    const first = activity.withGateClosed('a', () => open.promise);
    const second = activity.withGateClosed('a', async () => {});
    await second;
    expect(activity.enter('a', 'call')).toBeUndefined();
    using _ = activity.hold('a', 'client');
    let through = false;
    const waiting = activity.gateOpen('a').then(() => (through = true));
    await Promise.resolve();
    expect(through).toBe(false);
    open.resolve();
    await Promise.all([first, waiting]);
    expect(activity.enter('a', 'call')).toBeDefined();
    expect(activity.epoch('a')).toBeGreaterThan(before);
  });

  it('opens the gate when the task fails', async () => {
    await expect(activity.withGateClosed('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(activity.enter('a', 'call')).toBeDefined();
  });

  it('saves the last use of all sandboxes in one write', async () => {
    activity.touch('a');
    nowMs = 2000;
    activity.touch('a');
    activity.touch('b');
    activity.touch('gone');
    activity.forget('gone');
    expect(saved).toEqual([]);
    await activity.close();
    expect(saved).toEqual([
      new Map([
        ['a', 2000],
        ['b', 2000],
      ]),
    ]);
    expect(activity.usedAtMs('a')).toBe(2000);
  });
});

describe('a tracked guest', () => {
  it('counts a stream for as long as it is read, and not one that is never read', async () => {
    const place = installation();
    const backend = memoryBackend();
    const { control, principal } = await place.open(backend);
    const { sandbox } = await control.create(principal, asked());
    const inner = await backend.connect(sandbox.id);
    const guest = trackedGuest({
      async call(use) {
        const inside = activity.enter('a', use)!;
        return { guest: inner, [Symbol.dispose]: () => inside[Symbol.dispose]() };
      },
      hold: (use) => activity.hold('a', use),
      admit: (_guest, begin) => begin(),
      connection: 'client',
    });
    const uses = () => ['command', 'client', 'call'].map((use) => activity.count('a', use as 'command'));
    const files = guest.files('user');
    await files.write('/home/user/file', Buffer.from('text'));
    const { data } = await files.read('/home/user/file');
    expect(uses()).toEqual([0, 0, 0]);
    const reader = data[Symbol.asyncIterator]();
    expect((await reader.next()).done).toBe(false);
    expect(uses()).toEqual([0, 1, 0]);
    await reader.return?.();
    expect(uses()).toEqual([0, 0, 0]);
    await Array.fromAsync((await files.read('/home/user/file')).data);
    for await (const _ of files.list('/')) {
      expect(uses()).toEqual([0, 0, 1]);
      break;
    }
    const exec = (id: string, ...argv: string[]) =>
      guest.exec({ id, argv, env: {}, workdir: '/', user: 'user' });
    const handle = await exec('long', 'sleep', '1000');
    expect(uses()).toEqual([1, 0, 0]);
    await handle[Symbol.asyncDispose]();
    expect(uses()).toEqual([0, 0, 0]);
    const ended = await exec('short', 'echo', 'hi');
    await Array.fromAsync(ended.output);
    await ended.ended;
    expect(uses()).toEqual([0, 0, 0]);
    await expect(exec('none', 'no-such-program')).rejects.toMatchObject({ code: 'not_found' });
    await expect(guest.ports.connect(1)).rejects.toMatchObject({ code: 'unavailable' });
    expect(uses()).toEqual([0, 0, 0]);
    await control.close();
    place.remove();
  });
});
