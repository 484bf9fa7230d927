/**
 * What would be made for a request: of which snapshot, on which platform, from which spec. Nothing is made
 * here.
 */
import {
  CayError,
  SandboxSpecSchema,
  type Ability,
  type CreateSandbox,
  type Limits,
  type SandboxSpec,
} from '@cay/sdk/protocol';
import { allowsRuntime, requireMayHave, UNISOLATED } from '../../policy/allow-runtime.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import { usualLimits } from '../../policy/policy.ts';
import { choosePlatform, hasPlatforms } from '../placement/placement.ts';
import type { Context } from '../context.ts';
import { noMemory } from '../snapshots/fork.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';

/** What of a sandbox, or of some of its parts, the policy has a say about. */
export interface Wanted {
  spec: Pick<SandboxSpec, 'runtime' | 'platform'> & { limits: Partial<Limits> };
  timeoutMs?: number | null;
  /** What the caller can do about limits that it has not asked for itself. */
  hint?: string;
}

export interface Planning {
  /**
   * The snapshot that it starts from: the one that was asked for, or what the project's template of that name
   * is made of.
   */
  originOf(principal: Principal, request: CreateSandbox): SnapshotRow | undefined;
  /**
   * With `exactly`, user and directory are the request's also where these are the default. Rejects for a
   * platform that cannot be.
   */
  specOf(request: CreateSandbox, from: SnapshotRow | undefined, exactly?: boolean): Promise<SandboxSpec>;
  /** How long it may run before its timeout. */
  timeoutOf(request: CreateSandbox): number | null;
  /**
   * Rejects `permission_denied` or `invalid_argument` for what is not for this caller or beyond a maximum.
   */
  requireAllowed(principal: Principal, wanted: Wanted): Promise<void>;
}

const ABILITY_OF_LIMIT = {
  cpus: 'cpuLimit',
  memoryBytes: 'memoryLimit',
  diskBytes: 'diskLimit',
  pids: 'pidsLimit',
} as const satisfies Partial<Record<keyof Limits, Ability>>;

const DEFAULTS = SandboxSpecSchema.parse({});

export function openPlanning(
  { backend, capabilitiesOf, policy, templates }: Context,
  registry: SnapshotRegistry,
): Planning {
  /**
   * A limit that nobody asked for is dropped where the backend has none; one that was asked for is refused
   * there.
   */
  async function limitsFor(asked: Partial<Limits>, platform: string | undefined): Promise<Limits> {
    const { abilities } = await capabilitiesOf(platform);
    const limits = usualLimits(policy);
    for (const key of Object.keys(ABILITY_OF_LIMIT) as (keyof typeof ABILITY_OF_LIMIT)[]) {
      if (!abilities[ABILITY_OF_LIMIT[key]]) limits[key] = null;
    }
    return { ...limits, ...asked };
  }

  /** What is made of a snapshot is where the snapshot is. */
  function platformFor(
    { platform, labels }: CreateSandbox,
    from: SnapshotRow | undefined,
  ): string | undefined {
    const chosen = from && platform === undefined ? undefined : choosePlatform(backend, { platform, labels });
    const there = from?.spec.platform;
    if (!hasPlatforms(backend) || there === undefined) return chosen;
    if (chosen === undefined || chosen === there) return there;
    throw new CayError(
      'failed_precondition',
      `Snapshot "${from!.id}" is on platform "${there}", and so is what is made of it`,
      {
        details: { platform: there },
        hint: `take it out as an archive and import that on "${chosen}"`,
      },
    );
  }

  const originOf: Planning['originOf'] = (principal, request) => {
    const id = request.snapshot ?? templates.get(principal.project, request.template)?.snapshot;
    const snapshot = id === undefined ? undefined : registry.resolve(principal.project, id);
    if (snapshot && request.memory && !snapshot.memory) throw noMemory(snapshot);
    return snapshot;
  };

  const specOf: Planning['specOf'] = async (request, from, exactly = false) => {
    const { template, runtime, cmd, env, workdir, user, limits, readOnlyRoot } = request;
    const platform = platformFor(request, from);
    const own = {
      template,
      env,
      workdir,
      user,
      readOnlyRoot,
      ...(runtime !== undefined && { runtime }),
      ...(platform !== undefined && { platform }),
      ...(cmd && { cmd }),
    };
    if (!from) return { ...own, limits: await limitsFor(limits, platform) };
    // What was left as it is by default is as it was in the snapshot.
    const { platform: _platform, ...spec } = from.spec;
    return {
      ...spec,
      ...own,
      template: spec.template,
      env: { ...spec.env, ...env },
      workdir: workdir === DEFAULTS.workdir && !exactly ? spec.workdir : workdir,
      user: user === DEFAULTS.user && !exactly ? spec.user : user,
      readOnlyRoot: readOnlyRoot || spec.readOnlyRoot,
      limits: { ...spec.limits, ...limits },
    };
  };

  const timeoutOf: Planning['timeoutOf'] = ({ timeoutMs }) =>
    timeoutMs === undefined ? policy.defaults.timeoutMs : timeoutMs;

  const requireAllowed: Planning['requireAllowed'] = async (principal, { spec, timeoutMs, hint }) => {
    // Where nobody may have it the backend says so, and what may be had instead.
    if (allowsRuntime(policy, UNISOLATED)) requireMayHave(principal, spec.runtime);
    const { abilities } = await capabilitiesOf(spec.platform);
    requireLimits(policy, { ...spec.limits, ...(timeoutMs !== undefined && { timeoutMs }) }, abilities, hint);
  };

  return { originOf, specOf, timeoutOf, requireAllowed };
}
