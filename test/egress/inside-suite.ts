/** The battery from inside a real sandbox: the cases of the enforcement report, each a test of its own. */
import { newId, type EnforcementReport, type SandboxSpec } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { openWorld, type World } from '../../server/src/egress/testing/program.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import type { OpenedEgress } from '../../server/src/egress/open-egress.ts';
import { collect } from '../../server/src/guest/collect.ts';
import { CASES, runReport } from '../../server/src/enforcement/run-report.ts';
import { FORGE } from './forge-guest.ts';

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
  let world: World;

  beforeAll(async () => {
    world = openWorld({ authority: openAuthority(newAuthority()) });
    egress = world.egress;
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

  describe('a guest that is not the one of the sandbox', () => {
    /** As root inside. What ends the guest may end the program, too. */
    async function asRoot(argv: string[]): Promise<string> {
      try {
        const guest = await platform.backend.connect(id);
        const request = { id: newId('cmd'), argv, env: {}, workdir: '/', user: 'root' as const };
        return (await collect(await guest.exec(request), { maxBytes: 65_536 })).stdout.toString();
      } catch {
        return 'it has ended';
      }
    }
    const reached = () => world.resolved.filter((name) => name === 'forged.example.org');

    it('root that speaks as a guest on the sockets that it finds reaches nothing', async () => {
      // The sandbox itself may not; what says that it is its guest may not either.
      egress.policies.set(id, ['none']);
      world.names.set('forged.example.org', ['127.0.0.1']);
      expect(await asRoot(['python3', '-c', FORGE])).toMatch(/^tried \d/);
      expect(reached()).toEqual([]);
    });

    it('root that ends the guest reaches nothing', { timeout: 60_000 }, async () => {
      const script = `for one in 1 $(ls /proc | grep -E '^[0-9]+$'); do grep -qa guest /proc/$one/cmdline 2>/dev/null && [ $one != $$ ] && kill -9 $one; done; ${'python3 -c "import socket; socket.create_connection((\'forged.example.org\', 443), 5)"; '.repeat(2)} echo went on`;
      await asRoot(['sh', '-c', script]);
      expect(reached()).toEqual([]);
      const forged = egress.attempts(id).filter(({ name }) => name === 'forged.example.org');
      expect(forged.filter(({ verdict }) => verdict === 'allowed')).toEqual([]);
    });
  });
}
