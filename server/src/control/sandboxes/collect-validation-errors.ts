import { CayError, isCayError, type Limits, type SandboxSpec } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';

export interface ValidationError {
  error: CayError;
  /** The part of the spec that it is about; absent if it is not about one alone. */
  field?: string;
}

const NO_LIMITS = { cpus: null, memoryBytes: null, diskBytes: null, pids: null } satisfies Partial<Limits>;

/**
 * All that a backend has against a spec. Its `validate` stops at the first, so each part is tried beside
 * others that nobody could object to.
 */
export async function collectValidationErrors(
  backend: Pick<Backend, 'validate'>,
  spec: SandboxSpec,
): Promise<ValidationError[]> {
  const objections: ValidationError[] = [];

  async function tried(candidate: SandboxSpec, field?: string): Promise<boolean> {
    try {
      await backend.validate(candidate);
      return true;
    } catch (error) {
      if (!isCayError(error)) throw error;
      const known = objections.some((other) => other.error.message === error.message);
      if (!known) objections.push({ error, ...(field !== undefined && { field }) });
      return false;
    }
  }

  if (await tried(spec)) return [];
  const [whole] = objections.splice(0);
  const { runtime, ...rest } = spec;
  let plain: SandboxSpec = { ...rest, readOnlyRoot: false, limits: { ...spec.limits, ...NO_LIMITS } };
  if (!(await tried(plain, 'template'))) {
    plain = { ...plain, template: 'base' };
    // Nothing would do, so it is not about any part.
    if (!(await tried(plain))) return [{ error: whole!.error }];
  }
  if (runtime !== undefined) await tried({ ...plain, runtime }, 'runtime');
  if (spec.readOnlyRoot) await tried({ ...plain, readOnlyRoot: true }, 'readOnlyRoot');
  for (const limit of Object.keys(NO_LIMITS) as (keyof typeof NO_LIMITS)[]) {
    if (spec.limits[limit] !== null)
      await tried({ ...plain, limits: { ...plain.limits, [limit]: spec.limits[limit] } }, `limits.${limit}`);
  }
  return objections.length > 0 ? objections : [whole!];
}
