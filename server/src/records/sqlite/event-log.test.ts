import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
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

  it('makes no caller wait for a file that cannot be written, and writes all in order afterwards', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cay-log-'));
    const errors: unknown[] = [];
    const { log, close, isStuck } = await fillable(join(directory, 'events.db'), (error) =>
      errors.push(error),
    );
    try {
      await log.append({ type: 't0' });
      isStuck(true);
      const begun = performance.now();
      for (let n = 1; n <= 20; n++) await log.append({ type: `t${n}` });
      expect(performance.now() - begun).toBeLessThan(1000);
      expect(errors.map(String)).toEqual([expect.any(String)]);
      isStuck(false);
      await expect.poll(() => log.lastId(), { timeout: 5000 }).toBe(21);
      expect((await log.list({})).map(({ type }) => type)).toEqual(
        Array.from({ length: 21 }, (_, n) => `t${n}`),
      );
    } finally {
      await close();
      rmSync(directory, { recursive: true, force: true });
    }
  });
});

/** A log whose file cannot be written while it is stuck. */
async function fillable(path: string, onError: (error: unknown) => void) {
  const prepare = vi.spyOn(DatabaseSync.prototype, 'exec');
  const opened = await openSqliteEvents(path, { key: undefined, now: Date.now, ageing: Date.now, onError });
  const sqlite = prepare.mock.contexts[0] as DatabaseSync;
  prepare.mockRestore();
  const isStuck = (stuck: boolean) =>
    sqlite.exec(stuck ? 'PRAGMA query_only = ON' : 'PRAGMA query_only = OFF');
  return { ...opened, isStuck };
}
