import { newId, type CommandEnd, type CommandInfo } from '@cay/sdk/protocol';
import { describe, expect, it, vi } from 'vitest';
import type { CommandHandle, Guest } from '../../guest/guest.ts';
import { commandLimit } from './command-limit.ts';

const id = newId('sbx');

function handle(existing = false) {
  const { promise: ended, resolve } = Promise.withResolvers<CommandEnd>();
  return { command: { ended, existing } as unknown as CommandHandle, end: resolve };
}

function guestWith(running: () => number, commands = vi.fn()) {
  commands.mockImplementation(async () => Array.from({ length: running() }, () => ({}) as CommandInfo));
  return { guest: { commands } as unknown as Guest, commands };
}

describe('the bound on commands', () => {
  it('asks the guest only when it is reached, and at most once for all who wait', async () => {
    const bound = commandLimit(2);
    const { guest, commands } = guestWith(() => 2);
    for (let count = 0; count < 2; count++) await bound.start(id, guest, async () => handle().command);
    expect(commands).not.toHaveBeenCalled();
    const late = await Promise.allSettled(
      Array.from({ length: 20 }, () => bound.start(id, guest, async () => handle().command)),
    );
    expect(late.every((each) => each.status === 'rejected')).toBe(true);
    await expect(bound.start(id, guest, async () => handle().command)).rejects.toMatchObject({
      code: 'resource_exhausted',
      details: { limit: 'commands', maximum: 2 },
    });
    expect(commands).toHaveBeenCalledOnce();
  });

  it('gives one room to one of many who wait for it', async () => {
    const bound = commandLimit(2);
    const { guest } = guestWith(() => 1);
    const left = handle();
    await bound.start(id, guest, async () => left.command);
    await bound.start(id, guest, async () => handle().command);
    left.end({ kind: 'lost', reason: 'nobody reads' });
    await left.command.ended;
    const all = await Promise.allSettled(
      Array.from({ length: 20 }, () => bound.start(id, guest, async () => handle().command)),
    );
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });

  it('has room again when a command ends, fails to start, or ran before', async () => {
    const bound = commandLimit(1);
    const { guest } = guestWith(() => 0);
    const first = handle();
    await bound.start(id, guest, async () => first.command);
    first.end({ kind: 'exited', exitCode: 0 });
    await first.command.ended;
    await expect(bound.start(id, guest, () => Promise.reject(new Error('no such command')))).rejects.toThrow(
      'no such command',
    );
    await bound.start(id, guest, async () => handle(true).command);
    await bound.start(id, guest, async () => handle().command);
  });

  it('counts detached commands as the guest reports them, and a lying guest cannot hide watched ones', async () => {
    const bound = commandLimit(2);
    let running = 1;
    const { guest } = guestWith(() => running);
    const left = handle();
    await bound.start(id, guest, async () => left.command);
    left.end({ kind: 'lost', reason: 'nobody reads' });
    await left.command.ended;
    await bound.start(id, guest, async () => handle().command);
    running = 2;
    await expect(bound.start(id, guest, async () => handle().command)).rejects.toMatchObject({
      code: 'resource_exhausted',
    });

    const other = newId('sbx');
    const liar = guestWith(() => 0).guest;
    for (let count = 0; count < 2; count++) await bound.start(other, liar, async () => handle().command);
    await expect(bound.start(other, liar, async () => handle().command)).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
  });

  it('takes a guest that does not answer for one that has no room', async () => {
    const bound = commandLimit(1);
    const mute = { commands: () => Promise.reject(new Error('no answer')) } as unknown as Guest;
    await bound.start(id, mute, async () => handle().command);
    await expect(bound.start(id, mute, async () => handle().command)).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
  });
});
