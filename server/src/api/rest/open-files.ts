import type { Control } from '../../control/open-control.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { Files } from '../../guest/guest.ts';

/** The files of a sandbox as one of its users; its own default user if none is given. */
export type OpenFiles = (
  principal: Principal,
  ref: string,
  user: string | undefined,
) => Promise<{ files: Files; row: SandboxRow; as: string }>;

export function openFiles(control: Control): OpenFiles {
  return async (principal, ref, user) => {
    const { guest, row } = await control.enter(principal, ref);
    const as = user ?? row.spec.user;
    return { files: guest.files(as), row, as };
  };
}

export function noteFile(
  control: Control,
  principal: Principal,
  row: SandboxRow,
  type: string,
  data: Record<string, unknown>,
): void {
  control.events.append({ type, project: row.project, sandbox: row.id, key: principal.key, data });
}
