import {
  CayError,
  isCayError,
  type Ability,
  type Capabilities,
  type CreateSandbox,
  type Problem,
  type Validation,
} from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import { requireSecrets } from '../secrets/require-secrets.ts';
import type { SandboxVerbs } from './sandbox.ts';
import { collectValidationErrors } from './collect-validation-errors.ts';
import type { Planning } from './plan-sandbox.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';

/**
 * Reports everything that a create would refuse, where the create itself stops at the first error. Makes and
 * reserves nothing.
 */
export function validateVerb({
  archives,
  backend,
  capabilitiesOf,
  pressure,
  quota,
  records,
  planning,
}: Pick<Core, 'archives' | 'backend' | 'capabilitiesOf' | 'pressure' | 'quota' | 'records'> & {
  planning: Planning;
}): Pick<SandboxVerbs, 'validate'> {
  return {
    async validate(principal, request) {
      const problems: Problem[] = [];
      const add = (error: CayError, field: string | undefined, refused = true) =>
        void problems.push(problemOf(error, field, refused));
      async function attempt<T>(
        field: string | undefined,
        task: () => T | Promise<T>,
      ): Promise<T | undefined> {
        try {
          return await task();
        } catch (error) {
          if (!isCayError(error)) throw error;
          add(error, ['volume', 'bucket'].includes(String(error.details['what'])) ? 'mounts' : field);
          return undefined;
        }
      }
      const answer = (platform: string | null): Validation => ({
        ok: problems.every(({ refused }) => !refused),
        platform,
        problems,
      });

      const { name, getOrCreate } = request;
      const known = name === undefined ? undefined : await records.sandboxes.byName(principal.project, name);
      if (getOrCreate && name === undefined)
        add(new CayError('invalid_argument', '"getOrCreate" needs a "name"'), 'getOrCreate');
      if (getOrCreate && known) return answer(known.spec.platform ?? known.backend);
      if (known) add(new CayError('already_exists', `A sandbox named "${name}" exists already`), 'name');

      const from = await attempt(request.snapshot === undefined ? 'template' : 'snapshot', () =>
        planning.originOf(principal, request),
      );
      const spec = await attempt('platform', () => planning.specOf(principal, request, from));
      if (!spec) return answer(null);
      await attempt('runtime', () => planning.requireAllowed(principal, { spec: { ...spec, limits: {} } }));
      for (const [limit, value] of Object.entries(spec.limits)) {
        const { platform } = spec;
        await attempt(`limits.${limit}`, () =>
          planning.requireAllowed(principal, { spec: { platform, limits: { [limit]: value } } }),
        );
      }
      const timeoutMs = planning.timeoutOf(request);
      await attempt('timeoutMs', () =>
        planning.requireAllowed(principal, { spec: { platform: spec.platform, limits: {} }, timeoutMs }),
      );
      await attempt('network', async () => {
        const { network } = await planning.networkOf(principal, request, from);
        await requireSecrets(records, principal.project, network);
      });
      for (const { error, field } of await collectValidationErrors(backend, spec)) add(error, field);
      const capabilities = await attempt('platform', () => capabilitiesOf(spec.platform));
      if (capabilities) {
        const memory = memoryProblem(request, from, capabilities);
        if (memory) add(memory, 'memory');
        for (const { field, error } of withoutEffect(request, capabilities, archives.store !== undefined))
          add(error, field, false);
      }
      await attempt(undefined, () =>
        quota.require(records, principal.project, { sandboxes: 1, limits: spec.limits }),
      );
      await attempt(undefined, () => pressure.admit(spec.limits, { platform: spec.platform, asking: true }));
      return answer(spec.platform ?? backend.name);
    },
  };
}

function problemOf({ code, message, hint }: CayError, field: string | undefined, refused: boolean): Problem {
  return {
    code,
    message,
    ...(hint !== undefined && { hint }),
    ...(field !== undefined && { field }),
    refused,
  };
}

/** Memory can only continue under the runtime that it was taken with. */
function memoryProblem(
  request: CreateSandbox,
  from: SnapshotRow | undefined,
  { abilities, notes, runtimes }: Capabilities,
) {
  if (!from || !(request.memory ?? from.memory) || abilities.memorySnapshots) return undefined;
  if (from.runtime !== null && runtimes.includes(from.runtime)) return undefined;
  return new CayError(
    'unsupported',
    `The snapshot's memory cannot continue here${because(notes.memorySnapshots)}`,
    {
      hint: 'set "memory" to false: its files are intact',
    },
  );
}

/** Fields that a create accepts, and that have no effect on this platform. */
function withoutEffect(
  { idle, timeoutMs = null, onTimeout, onBoot }: CreateSandbox,
  { abilities, notes }: Capabilities,
  archives: boolean,
): { field: string; error: CayError }[] {
  const cannot = (field: string, what: string, ...missing: Ability[]) => ({
    field,
    error: new CayError('unsupported', `${what}${because(notes[missing[0]!])}`),
  });
  const found = [];
  if (idle.freezeAfterMs !== null && !abilities.freeze)
    found.push(cannot('idle.freezeAfterMs', 'Sandboxes cannot be frozen here', 'freeze'));
  if (idle.suspendAfterMs !== null && !abilities.suspend)
    found.push(cannot('idle.suspendAfterMs', 'Sandboxes cannot be suspended here', 'suspend'));
  if (idle.hibernateAfterMs !== null && !abilities.memorySnapshots)
    found.push(
      cannot(
        'idle.hibernateAfterMs',
        'Sandboxes of the default runtime cannot be hibernated here',
        'memorySnapshots',
      ),
    );
  if (idle.archiveAfterMs !== null && !(abilities.snapshots && archives))
    found.push(cannot('idle.archiveAfterMs', 'Sandboxes cannot be archived here', 'snapshots'));
  if (
    timeoutMs !== null &&
    (onTimeout === 'pause' || onTimeout === 'archive') &&
    !abilities.freeze &&
    !abilities.suspend &&
    !abilities.memorySnapshots
  )
    found.push(cannot('onTimeout', 'Sandboxes cannot be paused here: the timeout stops it', 'freeze'));
  if (onBoot === 'start' && !abilities.survivesRestart)
    found.push(cannot('onBoot', 'Sandboxes do not survive a restart of the server here', 'survivesRestart'));
  return found;
}

const because = (note: string | undefined) => (note === undefined ? '' : `: ${note}`);
