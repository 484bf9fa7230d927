import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openSqliteEvents } from './open-events.ts';

describe('the event log', () => {
  it('lists what belongs to a project, to a sandbox, or to both, in order and in pages', async () => {
    const name = fc.constantFrom('a', 'b', 'c');
    const event = fc.record({
      project: fc.option(name, { nil: null }),
      sandbox: fc.option(name, { nil: null }),
    });
    const query = fc.record(
      { after: fc.nat(30), project: name, sandbox: name, limit: fc.integer({ min: 1, max: 30 }) },
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 30 }), query, async (events, asked) => {
        const { log, close } = await openSqliteEvents(':memory:', {
          key: undefined,
          now: Date.now,
          ageing: Date.now,
          onError: (error) => expect.unreachable(String(error)),
        });
        for (const { project, sandbox } of events) await log.append({ type: 't', project, sandbox });
        const expected = events
          .map((one, index) => ({ ...one, id: index + 1 }))
          .filter(({ id, project, sandbox }) => {
            const ofProject = asked.project === undefined || project === asked.project;
            return (
              id > (asked.after ?? 0) &&
              ofProject &&
              (asked.sandbox === undefined || sandbox === asked.sandbox)
            );
          })
          .slice(0, asked.limit ?? 1000);
        expect((await log.list(asked)).map(({ id, project, sandbox }) => ({ project, sandbox, id }))).toEqual(
          expected,
        );
        await close();
      }),
    );
  });
});
