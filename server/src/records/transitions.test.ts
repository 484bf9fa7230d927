import { setTimeout as sleep } from 'node:timers/promises';
import { SANDBOX_STATES, type Pause, type SandboxState } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hibernatingBackend } from '../control/testing/hibernating-backend.ts';
import { asked, installation, memoryBackend, type Installation } from '../control/testing/test-control.ts';
import { TRANSITIONS, requireTransition } from './transitions.ts';

let place: Installation;
beforeEach(() => {
  place = installation();
});
afterEach(() => place.remove());

describe('transitions', () => {
  it('allow the listed changes and refuse all others', () => {
    for (const from of SANDBOX_STATES) {
      for (const to of SANDBOX_STATES) {
        const attempt = () => requireTransition('sbx_x', from, to);
        if (TRANSITIONS[from].includes(to)) expect(attempt).not.toThrow();
        else expect(attempt).toThrow(`is ${from} and cannot become ${to}`);
      }
    }
  });

  it('are legal in every order of requests and crashes, and records agree with the backend at the end', async () => {
    const verb = fc.constantFrom(
      'create',
      'start',
      'stop',
      'remove',
      'crash',
      'snapshot',
      'turn',
      'rollback',
      'fork',
      'freeze',
      'suspend',
      'hibernate',
      'archive',
      'resume',
      'use',
    );
    const step = fc.tuple(verb, fc.integer({ min: 0, max: 2 }), fc.integer({ min: 0, max: 12 }));
    const memory = memoryBackend();
    const backend = hibernatingBackend(memory);
    const { control, principal, errors, sql } = await place.open(backend);

    const operations: Record<string, (name: string) => Promise<unknown>> = {
      create: (name) => control.create(principal, asked({ name, getOrCreate: true })),
      start: (name) => control.start(principal, name),
      stop: (name) => control.stop(principal, name),
      remove: (name) => control.remove(principal, name),
      crash: async (name) => memory.crash((await control.get(principal, name)).id),
      snapshot: (name) => control.snapshot(principal, name, {}),
      turn: (name) => control.turn(principal, name, {}),
      rollback: (name) => control.rollback(principal, name, { to: 1 }),
      fork: (name) => control.fork(principal, name, {}),
      freeze: (name) => control.pause(principal, name, { as: 'frozen' }),
      suspend: (name) => control.pause(principal, name, { as: 'suspended' }),
      hibernate: (name) => control.pause(principal, name, { as: 'hibernated' }),
      archive: (name) => control.pause(principal, name, { as: 'archived' }),
      resume: (name) => control.resume(principal, name),
      use: async (name) => (await control.enter(principal, name)).guest.commands(),
    };
    const done = new Set<string>();
    /** The phases that the backend may report for each recorded state. */
    const agrees: Record<SandboxState | Pause, string[]> = {
      creating: [],
      active: ['ready'],
      paused: [],
      frozen: ['ready'],
      suspended: ['stopped'],
      hibernated: ['hibernated'],
      archived: ['absent'],
      stopped: ['stopped'],
      failed: ['failed', 'absent'],
      destroying: [],
    };

    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        for (const name of ['box-0', 'box-1']) {
          await operations['create']!(name);
          await operations['turn']!(name);
        }
        // Nearly all at the same time: each sandbox has its own queue, and operations that exclude each other
        // are refused.
        await Promise.all(
          steps.map(async ([operation, index, afterMs]) => {
            await sleep(afterMs);
            try {
              await operations[operation]!(`box-${index}`);
              done.add(operation);
            } catch (error) {
              expect(error).toMatchObject({ name: 'CayError' });
              expect((error as { code: string }).code).toMatch(
                /^(not_found|failed_precondition|already_exists|unavailable|conflict)$/,
              );
            }
          }),
        );
        const rows = async () => (await control.list(principal, { limit: 100 })).sandboxes;
        await expect
          .poll(async () =>
            Promise.all(
              (await rows()).map(async ({ id, state, pausedAs }) => {
                const { phase } = await backend.observe(id);
                return agrees[pausedAs ?? state].includes(phase)
                  ? 'agrees'
                  : `${id} is ${pausedAs ?? state} and ${phase}`;
              }),
            ),
          )
          .toSatisfy((seen: string[]) => seen.every((text) => text === 'agrees'));
        for (const { id } of await rows()) await control.remove(principal, id);
        for (const { id } of (await control.snapshots(principal, { limit: 1000 })).snapshots)
          await control.removeSnapshot(principal, id);
        expect(await backend.list()).toEqual([]);
        expect(await backend.snapshots()).toEqual([]);
        expect(place.archived()).toEqual([]);
        expect(sql('SELECT id FROM snapshots UNION SELECT id FROM forks')).toEqual([]);
      }),
      { numRuns: 60 },
    );
    expect(errors).toEqual([]);
    expect([...done].toSorted()).toEqual(Object.keys(operations).toSorted());
    await control.close();
  });
});
