import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { crunRuntime } from './crun.ts';

await runtimeSuite('crun', crunRuntime);

describe('A runtime whose program is missing', () => {
  it('is unavailable with a reason and a hint, and so is starting with it', async () => {
    const stateDir = mkdtempSync(join(tmpdir(), 'cay-crun-'));
    const runtime = crunRuntime({ stateDir, ids: { hostId: 1_000_000, size: 65_536 }, binary: '/nonexistent/crun' });
    const probe = await runtime.probe();
    expect(probe).toEqual({
      available: false,
      reason: '"/nonexistent/crun" is not installed',
      hint: expect.stringContaining('Install crun'),
    });
    rmSync(stateDir, { recursive: true });
  });
});
