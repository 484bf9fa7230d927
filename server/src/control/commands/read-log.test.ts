import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../../test/support/kept-bytes.ts';
import type { CommandRow } from '../../records/tables/commands.ts';
import { readLog } from './read-log.ts';
import type { Recorder } from './recorder.ts';

describe('readLog()', () => {
  it('keeps nothing for each look at a command that goes on', { timeout: 60_000 }, async () => {
    const TURNS = 20_000;
    const directory = mkdtempSync(join(tmpdir(), 'cay-read-log-'));
    const ended = Promise.withResolvers<undefined>();
    const enough = Promise.withResolvers<void>();
    let looks = 0;
    const recorder = {
      readers: new Set(),
      end: 0,
      ended: ended.promise,
      done: ended.promise,
      taken: () => {},
      async changed() {
        if (++looks >= TURNS) enough.resolve();
        if (looks >= TURNS) await ended.promise;
      },
    } as unknown as Recorder;
    const handle = readLog({
      command: { id: 'cmd' } as CommandRow,
      find: async () => undefined,
      recorder,
      directory,
      offset: 0,
      existing: true,
    });
    const reading = handle.output[Symbol.asyncIterator]();
    const kept = await keptBytes(async () => {
      reading.next().catch(() => {});
      await enough.promise;
    });
    // Six hundred bytes for each look were kept, for as long as the command ran.
    expect(kept / TURNS).toBeLessThan(100);
    await handle[Symbol.asyncDispose]();
    ended.resolve(undefined);
    rmSync(directory, { recursive: true, force: true });
  });
});
