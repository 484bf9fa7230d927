/** What a pod backend checks before it makes a sandbox: the cluster's runtimes, rights, and the spec. */
import { CayError, type SandboxSpec } from '@cay/sdk/protocol';
import { checkSpec } from '../support/check-spec.ts';
import { requireSpec } from '../support/check.ts';
import { USER } from '../support/sandbox-user.ts';
import type { NamespaceScope } from './namespace-scope.ts';
import type { KindInPlace, Place, PodBackendKind } from './pod-kind.ts';
import { mayWe, requirePrerequisites } from './prerequisites.ts';
import { findRuntimes, runtimeChoice, type Runtime, type RuntimeChoice } from './runtimes.ts';
import { imageOf } from './settings.ts';
import { neededRights } from './tenancy/declarations.ts';
import type { keepTenancy } from './tenancy/reconcile-tenancy.ts';
import { requireServerPolicy } from './tenancy/require-server-policy.ts';
import { VOLUME_RIGHTS } from './volumes/volume-settings.ts';
import { podAbilitiesOf } from './workloads/pod-abilities.ts';
import { checkMounts } from './workloads/pod-mounts.ts';
import { checkWorkdir } from './workloads/workdir.ts';

export interface PodAdmission {
  /** The cluster's runtimes, with everything prepared that a sandbox needs. Read again every minute. */
  runtimes(): Promise<RuntimeChoice>;
  /** What a sandbox can do in a pod of this runtime, as it was when these were last read. */
  abilitiesOf(runtime: Runtime): ReturnType<typeof podAbilitiesOf>;
  /** Rejects what cannot be honoured. Resolves with how the sandbox will run. */
  check(spec: SandboxSpec): Promise<Runtime>;
}

export interface PodAdmissionOptions {
  kind: PodBackendKind;
  place: Place;
  scope: NamespaceScope;
  tenancy: ReturnType<typeof keepTenancy>;
  prepare: KindInPlace['prepare'];
  closing: AbortSignal;
}

/** RuntimeClasses come and go. */
const RUNTIMES_MS = 60_000;
/** A pod has one user, by all of its names. */
const USERS = [USER.name, String(USER.uid), `${USER.name}:${USER.name}`, `${USER.uid}:${USER.gid}`];

export function podAdmission({
  kind,
  place: { client, namespace, installation, settings },
  scope: { project, withoutSandboxes, network },
  tenancy,
  prepare: prepareShared,
  closing,
}: PodAdmissionOptions): PodAdmission {
  let known: Promise<RuntimeChoice> | undefined;
  let mayClaim = false;
  const abilitiesOf = (runtime: Runtime) =>
    podAbilitiesOf(runtime, { ...kind, ...(mayClaim && { volumes: settings.volumes ?? {} }) });

  function runtimes(): Promise<RuntimeChoice> {
    return (known ??= prepare().catch((error: unknown) => {
      known = undefined;
      throw error;
    }));
  }

  async function prepare(): Promise<RuntimeChoice> {
    // The rights in a project's namespace come with it, and equal those checked in the installation's.
    if (project === undefined) {
      await requirePrerequisites(client, {
        namespace,
        kinds: kind.kinds,
        rights: neededRights(kind.rights, settings),
      });
      if (settings.tenancy?.perProject) await requireServerPolicy(client, { installation, signal: closing });
    }
    await tenancy?.ready();
    const { runtimeClass } = settings;
    const found = await findRuntimes(client, runtimeClass);
    if (runtimeClass !== undefined && !found.has(runtimeClass)) {
      throw new CayError(
        'failed_precondition',
        `Cannot use Kubernetes: it has no RuntimeClass "${runtimeClass}"`,
        {
          details: { reason: 'runtime_class_missing' },
          hint: `there are: ${[...found.keys()].join(', ')}`,
        },
      );
    }
    mayClaim = await mayMakeClaims();
    const choice = runtimeChoice(found, settings);
    const usual = choice.pick();
    if (!withoutSandboxes) await prepareShared?.(usual);
    if (project === undefined) network?.begin(usual);
    setTimeout(() => (known = undefined), RUNTIMES_MS).unref();
    return choice;
  }

  async function mayMakeClaims(): Promise<boolean> {
    const asked = VOLUME_RIGHTS.flatMap((right) => right.verbs.map((verb) => ({ ...right, verb })));
    const answers = await Promise.all(asked.map((right) => mayWe(client, right, namespace, closing)));
    return answers.every(Boolean);
  }

  return {
    runtimes,
    abilitiesOf,

    async check(spec) {
      const choice = await runtimes();
      requireSpec(spec);
      const runtime = choice.pick(spec.runtime);
      checkSpec(spec, 'Kubernetes', { runtimes: choice.names, ...abilitiesOf(runtime) });
      imageOf(spec.template, settings);
      checkWorkdir(spec.workdir);
      checkMounts(spec);
      if (!USERS.includes(spec.user)) {
        throw new CayError(
          'unsupported',
          `Kubernetes cannot run sandboxes as "${spec.user}": the only user of a pod is "${USER.name}"`,
        );
      }
      return runtime;
    },
  };
}
