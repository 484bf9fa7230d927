import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sandboxRow } from '../../../../test/conformance/records-rows.ts';
import { startRecorder } from './recorder.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-recorder-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe('a recorder', () => {
  it('looks again at once for an event that comes while it reads the record of the sandbox', async () => {
    const paused = sandboxRow('prj_1', { state: 'paused', pausedAs: 'frozen' });
    let looks = 0;
    const recorder = startRecorder({
      command: {
        sandbox: newId('sbx'),
        id: 'cmd',
        argv: ['true'],
        pty: false,
        pid: 1,
        overflow: 'wait',
        key: null,
        startedAtMs: 0,
        outputBytes: 0,
        keptFrom: 0,
      },
      fresh: true,
      directory,
      connect: () => Promise.reject(new Error('a paused sandbox is not connected to')),
      sandboxes: {
        async get() {
          recorder.nudge();
          // Removed at last. Twenty polls would take longer than the test may.
          return ++looks < 20 ? paused : undefined;
        },
      },
      now: Date.now,
      signal: new AbortController().signal,
      onError(error) {
        throw error;
      },
    });
    expect(await recorder.done).toBeUndefined();
    expect(looks).toBe(20);
  });
});
