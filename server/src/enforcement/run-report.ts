/** Tries all cases in one sandbox, one after the other, and says what came of each. */
import { randomBytes } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { release } from 'node:os';
import type { EnforcementCase as CaseRecord, EnforcementReport, SandboxId } from '@cay/sdk/protocol';
import type { OpenedEgress } from '../egress/open-egress.ts';
import type { Guest } from '../guest/guest.ts';
import { withTimeout } from '../lib/timeout.ts';
import { CARRIER } from './cases/carrier.ts';
import { DIRECT } from './cases/direct.ts';
import { HTTP } from './cases/http.ts';
import { INSIDE_TLS } from './cases/inside-tls.ts';
import { KERNEL } from './cases/kernel.ts';
import { LIMITS } from './cases/limits.ts';
import { NAMES } from './cases/names.ts';
import { SECRETS } from './cases/secrets.ts';
import { TLS } from './cases/tls.ts';
import { broken, type CaseWorld, type EnforcementCase, type Outcome } from './enforcement-case.ts';
import { openProber } from './prober.ts';
import { openNetwork } from './report-network.ts';
import { openTarget } from './target.ts';

/** In this order: what may end processes inside comes last. */
export const CASES: readonly EnforcementCase[] = [
  ...DIRECT,
  ...NAMES,
  ...TLS,
  ...INSIDE_TLS,
  ...HTTP,
  ...SECRETS,
  ...CARRIER,
  ...KERNEL,
  ...LIMITS,
];

const CASE_MS = 90_000;
const MAX_DETAIL = 300;

export interface ReportRequest {
  readonly platform: string;
  readonly runtime: string;
  readonly sandbox: SandboxId;
  readonly guest: Guest;
  readonly egress: OpenedEgress | undefined;
  readonly limits: CaseWorld['limits'];
  readonly directory: string;
  readonly version: string;
  readonly signal?: AbortSignal | undefined;
  onCase?(done: CaseRecord): void;
}

export async function runReport(request: ReportRequest): Promise<EnforcementReport> {
  const { platform, runtime, sandbox, guest, egress, limits, directory, version, signal } = request;
  const at = new Date().toISOString();
  const began = performance.now();
  const target = await openTarget();
  const canary = `/tmp/${target.abstract}`;
  const placeholder = `cay-placeholder-${randomBytes(18).toString('hex')}`;
  const network = egress && openNetwork(egress, sandbox, target, placeholder);
  const probe = await openProber(guest, directory);
  try {
    await writeFile(canary, 'of the host\n', { mode: 0o644 });
    const inside = (await probe.attempt('read /proc/version')).replace(/^text /, '').replaceAll('|', '');
    const world: CaseWorld = {
      probe,
      target,
      limits,
      kernel: inside.includes(release()) ? 'shared' : 'own',
      carries: egress !== undefined,
      network,
      placeholder,
      directory,
    };
    const cases: CaseRecord[] = [];
    for (const one of CASES) {
      signal?.throwIfAborted();
      const done = await tried(one, world);
      cases.push(done);
      request.onCase?.(done);
    }
    const counts = { blocked: 0, open: 0, works: 0, broken: 0, skipped: 0 };
    for (const { state } of cases) counts[state]++;
    return {
      platform,
      runtime,
      at,
      durationMs: Math.round(performance.now() - began),
      verdict: counts.open > 0 ? 'not_enforced' : counts.broken > 0 ? 'incomplete' : 'enforced',
      versions: { server: version, hostKernel: release(), sandboxKernel: inside.slice(0, MAX_DETAIL) },
      counts,
      cases,
    };
  } finally {
    await probe.close();
    network?.close();
    await target.close();
    await rm(canary, { force: true });
  }
}

async function tried(one: EnforcementCase, world: CaseWorld): Promise<CaseRecord> {
  const from = performance.now();
  const once = (): Promise<Outcome> =>
    withTimeout(one.run(world), CASE_MS, () => new Error(`no end in ${CASE_MS / 1000} s`));
  // What could not be tried on a busy machine is tried once more.
  const outcome = await once()
    .catch(once)
    .catch((error: Error) => broken(error.message));
  return {
    id: one.id,
    area: one.id.split('.')[0]!,
    title: one.title,
    state: outcome.state,
    // Words of the sandbox are hostile: one line of what can be printed.
    detail: outcome.detail.replace(/[^\x20-\x7e]/g, '?').slice(0, MAX_DETAIL),
    ms: Math.round(performance.now() - from),
  };
}
