/** The battery from inside a real sandbox: the cases of the enforcement report, each a test of its own. */
import { newId, type EnforcementReport, type SandboxSpec } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { openWorld } from '../../server/src/egress/testing/program.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import type { OpenedEgress } from '../../server/src/egress/open-egress.ts';
import { CASES, runReport } from '../../server/src/enforcement/run-report.ts';

export interface InsidePlatform {
  backend: Backend;
  spec: SandboxSpec;
  runtime: string;
  cleanup(): Promise<void>;
}

export function insideSuite(open: (egress: OpenedEgress) => Promise<InsidePlatform>): void {
  const id = newId('sbx');
  let egress: OpenedEgress;
  let platform: InsidePlatform;
  let report: EnforcementReport;

  beforeAll(async () => {
    egress = openWorld({ authority: openAuthority(newAuthority()) }).egress;
    platform = await open(egress);
    const { backend, spec, runtime } = platform;
    await backend.ensure(id, spec);
    report = await runReport({
      platform: backend.name,
      runtime,
      sandbox: id,
      guest: await backend.connect(id),
      egress,
      limits: spec.limits,
      directory: '/home/user',
      version: 'test',
    });
  }, 300_000);
  afterAll(async () => {
    await platform?.backend.remove(id);
    await platform?.cleanup();
    egress?.close();
  }, 60_000);

  it('has at least a hundred cases', () => {
    expect(new Set(CASES.map((one) => one.id)).size).toBe(CASES.length);
    expect(CASES.length).toBeGreaterThanOrEqual(100);
  });

  describe('from inside', () => {
    it.each(CASES.map((one) => [one.id, one.title] as const))('%s: %s', (caseId) => {
      const { state, detail } = report.cases.find((one) => one.id === caseId)!;
      if (state === 'skipped') console.info(`${caseId}: skipped: ${detail}`);
      expect(['blocked', 'works', 'skipped'], `${caseId} is ${state}: ${detail}`).toContain(state);
    });
  });
}
