import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EnforcementReport } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { openReportStore } from './report-store.ts';

const directory = mkdtempSync(join(tmpdir(), 'cay-reports-'));
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const report = (
  verdict: EnforcementReport['verdict'],
  runtime = 'runc',
  at = '2026-01-01',
): EnforcementReport => ({
  platform: 'local',
  runtime,
  at,
  durationMs: 1,
  verdict,
  versions: { server: '1', hostKernel: '6', sandboxKernel: '6' },
  counts: { blocked: 0, open: 1, works: 0, broken: 0, skipped: 0 },
  cases: [{ id: 'direct.tcp-host', area: 'direct', title: 't', state: 'open', detail: 'd', ms: 1 }],
});

describe('kept reports', () => {
  it('are the last of each runtime, the newest first, also for another server', async () => {
    const store = openReportStore(join(directory, 'a'));
    expect(await store.of('local')).toEqual([]);
    await store.keep(report('not_enforced'));
    await store.keep(report('enforced', 'runc', '2026-01-02'));
    await store.keep(report('enforced', 'runsc', '2026-01-03'));
    const again = openReportStore(join(directory, 'a'));
    expect((await again.of('local')).map(({ runtime }) => runtime)).toEqual(['runsc', 'runc']);
    expect(await again.of('docker')).toEqual([]);
    writeFileSync(join(directory, 'a', 'local@old.json'), '{"platform":"local"}');
    expect(await again.of('local')).toHaveLength(2);
  });

  it('refuse more trust to a platform whose last report has an open case, and to no other', async () => {
    const store = openReportStore(join(directory, 'b'));
    await store.requireNotFailed('local', 'a secret');
    await store.keep(report('not_enforced'));
    await store.keep(report('enforced', 'runsc'));
    await expect(store.requireNotFailed('local', 'a secret')).rejects.toMatchObject({
      code: 'failed_precondition',
      details: { open: ['direct.tcp-host'], runtime: 'runc' },
    });
    await store.requireNotFailed('docker', 'a secret');
    await store.keep(report('enforced'));
    await store.requireNotFailed('local', 'a secret');
  });
});
