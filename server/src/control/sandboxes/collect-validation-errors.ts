import { isCayError, type CayError, type SandboxSpec } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { ENFORCED_LIMITS } from '../../policy/limit-abilities.ts';

export interface ValidationError {
  error: CayError;
  /** The field of the spec that caused it; absent if no single field did. */
  field?: string;
}

const NO_LIMITS = { cpus: null, memoryBytes: null, diskBytes: null, pids: null };

/**
 * All errors that a backend has with a spec. `validate` stops at the first, so each field is tried by itself
 * in a spec that is otherwise valid.
 */
export async function collectValidationErrors(
  backend: Pick<Backend, 'validate'>,
  spec: SandboxSpec,
): Promise<ValidationError[]> {
  async function errorOf(candidate: SandboxSpec): Promise<CayError | undefined> {
    try {
      await backend.validate(candidate);
      return undefined;
    } catch (error) {
      if (!isCayError(error)) throw error;
      return error;
    }
  }

  const whole = await errorOf(spec);
  if (!whole) return [];
  const found: ValidationError[] = [];
  const tryField = async (field: string, candidate: SandboxSpec) => {
    const error = await errorOf(candidate);
    if (error) found.push({ error, field });
    return error === undefined;
  };
  const { runtime, mounts, ...rest } = spec;
  let plain: SandboxSpec = { ...rest, readOnlyRoot: false, limits: { ...spec.limits, ...NO_LIMITS } };
  if (!(await tryField('template', plain))) {
    plain = { ...plain, template: 'base' };
    // Even the plainest spec is refused, so no field is the cause.
    if (await errorOf(plain)) return [{ error: whole }];
  }
  if (runtime !== undefined) await tryField('runtime', { ...plain, runtime });
  if (mounts) await tryField('mounts', { ...plain, mounts });
  if (spec.readOnlyRoot) await tryField('readOnlyRoot', { ...plain, readOnlyRoot: true });
  for (const limit of ENFORCED_LIMITS) {
    const limits = { ...plain.limits, [limit]: spec.limits[limit] };
    if (spec.limits[limit] !== null) await tryField(`limits.${limit}`, { ...plain, limits });
  }
  return found.length > 0 ? found : [{ error: whole }];
}
