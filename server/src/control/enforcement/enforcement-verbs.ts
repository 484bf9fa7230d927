import { randomBytes } from 'node:crypto';
import { CayError, CreateSandboxSchema, type EnforcementReport, type Limits } from '@cay/sdk/protocol';
import { runReport } from '../../enforcement/run-report.ts';
import { ENFORCED_LIMITS, LIMIT_ABILITIES } from '../../policy/limit-abilities.ts';
import type { Core } from '../core.ts';
import { hasPlatforms, platformsOf } from '../placement/placement.ts';
import type { SandboxVerbs } from '../sandboxes/sandbox.ts';
import { requireAdmin, type Principal } from '../tenants/principal.ts';
import type { EnforcementVerbs } from './enforcement.ts';

const MiB = 1024 * 1024;
/** Small, so that they are soon reached. */
const LIMITS: Partial<Limits> = { memoryBytes: 256 * MiB, diskBytes: 256 * MiB, pids: 64 };
/** A server that ends during a report leaves a sandbox that ends by itself. */
const TIMEOUT_MS = 15 * 60_000;

export function enforcementVerbs({
  backend,
  capabilitiesOf,
  control,
  egress,
  enforcement,
  onError,
  version,
}: Pick<Core, 'backend' | 'capabilitiesOf' | 'egress' | 'enforcement' | 'onError'> & {
  control: Pick<SandboxVerbs, 'create' | 'enter' | 'remove'>;
  version: string;
}): EnforcementVerbs {
  let running: string | undefined;

  function requirePlatform(name: string): void {
    const names = platformsOf(backend).map((platform) => platform.name);
    if (names.includes(name)) return;
    throw new CayError('not_found', `Platform "${name}" is unknown`, {
      details: { what: 'platform' },
      hint: `this server has ${names.map((one) => `"${one}"`).join(', ')}`,
    });
  }

  async function make(
    principal: Principal,
    platform: string,
    runtime: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<EnforcementReport> {
    const { abilities } = await capabilitiesOf(hasPlatforms(backend) ? platform : undefined);
    if (!abilities.processes)
      throw new CayError('unsupported', `Platform "${platform}" runs no programs: there is nothing to try`);
    const limits = Object.fromEntries(
      ENFORCED_LIMITS.map((limit) => [limit, abilities[LIMIT_ABILITIES[limit]] ? LIMITS[limit] : null]),
    );
    const { sandbox } = await control.create(
      principal,
      CreateSandboxSchema.parse({
        name: `enforcement-${randomBytes(5).toString('hex')}`,
        limits: Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)),
        timeoutMs: TIMEOUT_MS,
        onTimeout: 'destroy',
        ...(hasPlatforms(backend) && { platform }),
        ...(runtime !== undefined && { runtime }),
        ...(egress && { network: 'none' }),
      }),
    );
    try {
      const { guest, row } = await control.enter(principal, sandbox.id);
      return await runReport({
        platform,
        runtime: sandbox.runtime ?? runtime ?? platform,
        sandbox: sandbox.id,
        guest,
        egress: egress?.engine,
        limits: row.spec.limits,
        directory: row.spec.workdir,
        version,
        signal,
      });
    } finally {
      await control.remove(principal, sandbox.id).catch(onError);
    }
  }

  return {
    async reports(principal, platform) {
      requireAdmin(principal);
      requirePlatform(platform);
      return enforcement.of(platform);
    },
    async run(principal, platform, { runtime }, { signal } = {}) {
      requireAdmin(principal);
      requirePlatform(platform);
      if (running !== undefined)
        throw new CayError('conflict', `A report about platform "${running}" is being made`, {
          hint: 'wait for its end, which takes a minute or two',
        });
      running = platform;
      try {
        const report = await make(principal, platform, runtime, signal);
        await enforcement.keep(report);
        return report;
      } finally {
        running = undefined;
      }
    },
  };
}
