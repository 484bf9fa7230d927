import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runtimeSuite } from '../../../../test/conformance/runtime-suite.ts';
import { runcRuntime } from './runc.ts';

await runtimeSuite('runc', runcRuntime);

describe.skipIf(process.getuid?.() !== 0)('A runtime that cannot join a user namespace', () => {
  it('is found out by the probe, and makes its own', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'cay-runc-'));
    chmodSync(dir, 0o711);
    const [binary, tries] = [join(dir, 'runc'), join(dir, 'tries')];
    const refuses = `case "$*" in *--bundle*) echo try >> ${tries}; grep -q '"type":"user","path"' "$PROBE/config.json" && exit 1 ;; esac`;
    const probe = join(dir, 'state/probes/runc');
    writeFileSync(binary, `#!/bin/sh\nPROBE=${probe}\n${refuses}\nexec runc "$@"\n`, { mode: 0o755 });
    const runtime = runcRuntime({
      stateDir: join(dir, 'state'),
      ids: { hostId: 1_000_000, size: 65_536 },
      binary,
    });
    expect(await runtime.probe()).toMatchObject({ available: true });
    expect(readFileSync(tries, 'utf8')).toBe('try\ntry\n');
    rmSync(dir, { recursive: true });
  });
});
