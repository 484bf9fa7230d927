import { CayError, type Sandbox, type SandboxId } from '@cay/sdk/protocol';
import { requireMayHave } from '../../policy/allow-runtime.ts';
import type { SandboxRecords, SandboxRow } from '../../records/sandboxes.ts';
import type { PreviewTokens } from '../tenants/preview-tokens.ts';
import type { Principal } from '../tenants/principal.ts';
import type { Activity } from './activity.ts';
import { showSandbox } from './show-sandbox.ts';

export interface SandboxLookup {
  /** By id or name. Throws `not_found` for a sandbox of another project. */
  find(principal: Principal, ref: string): SandboxRow;
  /** The record as it is now. Throws `not_found` if it was deleted. */
  reload(row: Pick<SandboxRow, 'id'>): SandboxRow;
  /** A record as the API shows it. */
  show(row: SandboxRow): Sandbox;
}

export function openLookup({
  sandboxes,
  activity,
  previews,
  previewUrl,
  pullText,
}: {
  sandboxes: SandboxRecords;
  activity: Activity;
  previews: PreviewTokens;
  previewUrl(id: SandboxId, port: number): string;
  /** What to say of a sandbox that waits for its image. */
  pullText?(template: string): string | undefined;
}): SandboxLookup {
  const notFound = (ref: string) => new CayError('not_found', `Sandbox "${ref.slice(0, 80)}" does not exist`);
  return {
    find(principal, ref) {
      const row = ref.startsWith('sbx_') ? sandboxes.get(ref) : sandboxes.byName(principal.project, ref);
      if (row?.project !== principal.project) throw notFound(ref);
      // Access to a sandbox without isolation is access to the host.
      requireMayHave(principal, row.spec.runtime, row.runtime);
      return row;
    },
    reload({ id }) {
      const row = sandboxes.get(id);
      if (!row) throw notFound(id);
      return row;
    },
    show(row) {
      // The last use is recorded every few seconds.
      const usedAtMs = activity.usedAtMs(row.id);
      const used = usedAtMs === undefined ? row.usedAtMs : Math.max(usedAtMs, row.usedAtMs ?? 0);
      const message = row.state === 'creating' ? (pullText?.(row.spec.template) ?? row.message) : row.message;
      return showSandbox({ ...row, message, usedAtMs: used }, previews, previewUrl);
    },
  };
}
