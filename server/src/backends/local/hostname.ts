import type { SandboxId } from '@cay/sdk/protocol';
import type { SandboxRecord } from './sandbox-record.ts';

/** The hostname of a sandbox: its name, or its id if it has none. A hostname cannot contain an underscore. */
export function hostnameFor(id: SandboxId, name: string | undefined): string {
  return name ?? id.replaceAll('_', '-');
}

export function hostnameOf({ id, hostname }: Pick<SandboxRecord, 'id' | 'hostname'>): string {
  return hostname ?? hostnameFor(id, undefined);
}
