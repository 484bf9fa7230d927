import { SANDBOX_STATES, type SandboxState } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asked, installation, memoryBackend, type Installation } from './testing/test-control.ts';
import { TRANSITIONS, requireTransition } from './transitions.ts';

let place: Installation;
beforeEach(() => {
  place = installation();
});
afterEach(() => place.remove());

describe('transitions', () => {
  it('allow what is listed and refuse all else', () => {
    for (const from of SANDBOX_STATES) {
      for (const to of SANDBOX_STATES) {
        const attempt = () => requireTransition('sbx_x', from, to);
        if (TRANSITIONS[from].includes(to)) expect(attempt).not.toThrow();
        else expect(attempt).toThrow(`is ${from} and cannot become ${to}`);
      }
    }
  });

  it('are legal in every order of requests and crashes, and records agree with the backend at the end', async () => {
    const step = fc.tuple(fc.constantFrom('create', 'start', 'stop', 'remove', 'crash'), fc.integer({ min: 0, max: 2 }));
    const backend = memoryBackend();
    const { control, principal, errors } = await place.open(backend);
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        // All at once: the queue of each sandbox orders them.
        await Promise.all(
          steps.map(async ([verb, index]) => {
            const name = `box-${index}`;
            try {
              if (verb === 'create') await control.create(principal, asked({ name, getOrCreate: true }));
              else if (verb === 'crash') backend.crash(control.get(principal, name).id);
              else await control[verb as 'start' | 'stop' | 'remove'](principal, name);
            } catch (error) {
              expect(error).toMatchObject({ name: 'CayError' });
              expect((error as { code: string }).code).toMatch(/^(not_found|failed_precondition|already_exists|unavailable|conflict)$/);
            }
          }),
        );
        const agrees: Record<SandboxState, string[]> = {
          creating: [],
          active: ['ready'],
          paused: ['ready'],
          stopped: ['stopped'],
          failed: ['failed', 'absent'],
          destroying: [],
        };
        await expect
          .poll(async () => {
            const seen = await Promise.all(
              control
                .list(principal, { limit: 100 })
                .sandboxes.map(async ({ id, state }) => agrees[state].includes((await backend.observe(id)).phase)),
            );
            return seen.every(Boolean);
          })
          .toBe(true);
        for (const { id } of control.list(principal, { limit: 100 }).sandboxes) await control.remove(principal, id);
        expect(await backend.list()).toEqual([]);
      }),
      { numRuns: 40 },
    );
    expect(errors).toEqual([]);
    await control.close();
  });
});
