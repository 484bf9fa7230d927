import { existsSync, mkdtempSync, readdirSync, rmSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeStage, runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { detectCgroups } from '../cgroups/detect.ts';
import { crunRuntime } from './crun.ts';

await runtimeSuite('crun', crunRuntime);

describe('A runtime whose program is missing', () => {
  const ids = { hostId: 1_000_000, size: 65_536 };
  const hint = expect.stringContaining('install crun');

  it('is unavailable with a reason and a hint, and so is starting with it, which leaves nothing', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'cay-crun-'));
    const prefix = `cay-test-missing-${process.pid}`;
    const runtime = crunRuntime({ stateDir: join(dir, 'state'), ids, binary: '/nonexistent/crun' });
    expect(await runtime.probe()).toEqual({
      available: false,
      reason: '"/nonexistent/crun" is not installed',
      hint,
    });
    const cgroups = await detectCgroups({ prefix });
    const { container, close } = await makeStage({
      dir: join(dir, 'c'),
      name: 'missing',
      ids,
      cgroups,
      changes: {},
    });
    await expect(runtime.start(container)).rejects.toMatchObject({ code: 'unavailable', hint });
    expect(await cgroups.list()).toEqual([]);
    expect(await runtime.list()).toEqual([]);
    await close();
    rmSync(dir, { recursive: true });
    for (const hierarchy of readdirSync('/sys/fs/cgroup')) {
      const parent = join('/sys/fs/cgroup', hierarchy, prefix);
      if (existsSync(parent)) rmdirSync(parent);
    }
  });
});
