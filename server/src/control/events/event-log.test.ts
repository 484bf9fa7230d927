import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openEventLog } from './event-log.ts';

describe('the event log', () => {
  it('lists what belongs to a project, to a sandbox, or to both, in order and in pages', () => {
    const name = fc.constantFrom('a', 'b', 'c');
    const event = fc.record({
      project: fc.option(name, { nil: null }),
      sandbox: fc.option(name, { nil: null }),
    });
    const query = fc.record(
      { after: fc.nat(30), project: name, sandbox: name, limit: fc.integer({ min: 1, max: 30 }) },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.array(event, { maxLength: 30 }), query, (events, asked) => {
        const log = openEventLog(':memory:');
        for (const { project, sandbox } of events) log.append({ type: 't', project, sandbox });
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
        expect(log.list(asked).map(({ id, project, sandbox }) => ({ project, sandbox, id }))).toEqual(
          expected,
        );
        log.close();
      }),
    );
  });
});
