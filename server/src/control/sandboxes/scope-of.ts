import type { CallScope } from '../../backends/backend.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';

/** What a backend gets about a sandbox that it makes or starts. */
export function scopeOf({ project, name }: Pick<SandboxRow, 'project' | 'name'>): CallScope {
  return { project, ...(name !== null && { name }) };
}
