/**
 * What a create would make: from which snapshot, on which platform, with which spec. Makes nothing.
 */
import {
  CayError,
  SandboxSpecSchema,
  type CreateSandbox,
  type Limits,
  type SandboxSpec,
} from '@cay/sdk/protocol';
import { allowsRuntime, requireMayHave, UNISOLATED } from '../../policy/allow-runtime.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import { ENFORCED_LIMITS, LIMIT_ABILITIES } from '../../policy/limit-abilities.ts';
import { usualLimits } from '../../policy/policy.ts';
import { choosePlatform, hasPlatforms } from '../placement/placement.ts';
import type { Core } from '../core.ts';
import { resolveMounts } from '../volumes/volume-mounts.ts';
import { noMemory } from '../snapshots/memory-errors.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';

/** The parts of a sandbox, or some of them, that the operator's policy restricts. */
export interface Wanted {
  spec: Pick<SandboxSpec, 'runtime' | 'platform'> & { limits: Partial<Limits> };
  timeoutMs?: number | null;
  /** What the caller can do about limits that it has not asked for itself. */
  hint?: string;
}

export interface Planning {
  /**
   * The snapshot to start from: `snapshot`, or the one that the project's template of that name is made of.
   */
  originOf(principal: Principal, request: CreateSandbox): Promise<SnapshotRow | undefined>;
  /**
   * With `exactly` the request's user and workdir are used even when they equal the defaults. Rejects for a
   * platform that does not exist, or that the snapshot is not on, and for a volume that does not exist.
   */
  specOf(
    principal: Principal,
    request: CreateSandbox,
    from: SnapshotRow | undefined,
    exactly?: boolean,
  ): Promise<SandboxSpec>;
  timeoutOf(request: CreateSandbox): number | null;
  /**
   * A sandbox made from a snapshot has the policy of the snapshot, and one from a template that of the
   * template or the operator's default. `templateNetwork` bounds it. Rejects `invalid_argument` if a rule
   * cannot be read.
   */
  networkOf(
    principal: Principal,
    request: CreateSandbox,
    from: SnapshotRow | undefined,
  ): Promise<Pick<SandboxRow, 'network' | 'templateNetwork'>>;
  /**
   * Rejects `permission_denied` for a runtime that the principal may not use, `invalid_argument` for a limit
   * beyond its maximum.
   */
  requireAllowed(principal: Principal, wanted: Wanted): Promise<void>;
}

const DEFAULTS = SandboxSpecSchema.parse({});

export function openPlanning({
  backend,
  capabilitiesOf,
  networks,
  policy,
  records,
  registry,
}: Pick<Core, 'backend' | 'capabilitiesOf' | 'networks' | 'policy' | 'records'> & {
  registry: Pick<SnapshotRegistry, 'resolve'>;
}): Planning {
  /**
   * A default limit is dropped where the backend cannot enforce it; one from the request is refused there.
   */
  async function limitsFor(asked: Partial<Limits>, platform: string | undefined): Promise<Limits> {
    const { abilities } = await capabilitiesOf(platform);
    const limits = usualLimits(policy);
    for (const limit of ENFORCED_LIMITS) if (!abilities[LIMIT_ABILITIES[limit]]) limits[limit] = null;
    return { ...limits, ...asked };
  }

  /** A sandbox made from a snapshot is on the snapshot's platform. */
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
      `Cannot create on platform "${chosen}": snapshot "${from!.id}" is on platform "${there}"`,
      { details: { platform: there }, hint: `export the snapshot and import it on "${chosen}"` },
    );
  }

  const originOf: Planning['originOf'] = async (principal, request) => {
    const id =
      request.snapshot ?? (await records.templates.get(principal.project, request.template))?.snapshot;
    const snapshot = id === undefined ? undefined : await registry.resolve(records, principal.project, id);
    if (snapshot && request.memory && !snapshot.memory) throw noMemory(snapshot);
    return snapshot;
  };

  const specOf: Planning['specOf'] = async ({ project }, request, from, exactly = false) => {
    const { template, runtime, cmd, env, workdir, user, limits, readOnlyRoot } = request;
    const platform = platformFor(request, from);
    // A snapshot that was imported may name volumes of others.
    const wanted = request.mounts ?? from?.spec.mounts ?? [];
    const mounts = await resolveMounts(records, { project, platform }, wanted);
    const own = {
      template,
      env,
      workdir,
      user,
      readOnlyRoot,
      ...(runtime !== undefined && { runtime }),
      ...(platform !== undefined && { platform }),
      ...(cmd && { cmd }),
      ...(mounts.length > 0 && { mounts }),
    };
    if (!from) return { ...own, limits: await limitsFor(limits, platform) };
    // A field with its default value is as it was in the snapshot.
    const { platform: _platform, mounts: _mounts, ...spec } = from.spec;
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

  const networkOf: Planning['networkOf'] = async ({ project }, request, from) => {
    if (request.snapshot !== undefined && from)
      return {
        network: networks.policyFor(request.network, from.network),
        templateNetwork: from.templateNetwork,
      };
    const template = from && (await records.templates.get(project, request.template));
    const templateNetwork = template?.network ?? from?.templateNetwork ?? null;
    return { network: networks.policyFor(request.network, templateNetwork), templateNetwork };
  };

  const requireAllowed: Planning['requireAllowed'] = async (principal, { spec, timeoutMs, hint }) => {
    // If the runtime is disabled for all callers, the backend's own error says what can be used instead.
    if (allowsRuntime(policy, UNISOLATED)) requireMayHave(principal, spec.runtime);
    const { abilities } = await capabilitiesOf(spec.platform);
    requireLimits(policy, { ...spec.limits, ...(timeoutMs !== undefined && { timeoutMs }) }, abilities, hint);
  };

  return { originOf, specOf, timeoutOf, networkOf, requireAllowed };
}
