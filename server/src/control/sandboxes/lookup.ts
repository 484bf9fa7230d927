import { CayError, type Sandbox, type SandboxId } from '@cay/sdk/protocol';
import { requireMayHave } from '../../policy/allow-runtime.ts';
import type { Records } from '../../records/records.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { PreviewTokens } from '../tenants/preview-tokens.ts';
import type { Principal } from '../tenants/principal.ts';
import type { Activity } from './activity.ts';
import { showSandbox } from './show-sandbox.ts';

export interface SandboxLookup {
  /** By id or name. Rejects `not_found` for a sandbox of another project. */
  find(principal: Principal, ref: string): Promise<SandboxRow>;
  /** The record as it is now. Rejects `not_found` if it was deleted. */
  reload(row: Pick<SandboxRow, 'id'>): Promise<SandboxRow>;
  /** A record as the API shows it. Not for the body of a transaction. */
  show(row: SandboxRow): Promise<Sandbox>;
  showAll(rows: readonly SandboxRow[]): Promise<Sandbox[]>;
}

export function openLookup({
  records,
  activity,
  previews,
  previewUrl,
  pullText,
}: {
  records: Pick<Records, 'sandboxes' | 'tokenEpochs'>;
  activity: Activity;
  previews: PreviewTokens;
  previewUrl(id: SandboxId, port: number): string;
  /** What to say of a sandbox that waits for its image. */
  pullText?(template: string): string | undefined;
}): SandboxLookup {
  const { sandboxes, tokenEpochs } = records;
  const notFound = (ref: string) => new CayError('not_found', `Sandbox "${ref.slice(0, 80)}" does not exist`);

  function show(row: SandboxRow, epoch: number): Sandbox {
    // The last use is recorded every few seconds.
    const usedAtMs = activity.usedAtMs(row.id);
    const used = usedAtMs === undefined ? row.usedAtMs : Math.max(usedAtMs, row.usedAtMs ?? 0);
    const message = row.state === 'creating' ? (pullText?.(row.spec.template) ?? row.message) : row.message;
    return showSandbox({ ...row, message, usedAtMs: used }, (port) => {
      const url = previewUrl(row.id, port);
      return { url, token: () => previews.token(row.id, port, epoch) };
    });
  }

  return {
    async find(principal, ref) {
      const row = await (ref.startsWith('sbx_')
        ? sandboxes.get(ref)
        : sandboxes.byName(principal.project, ref));
      if (row?.project !== principal.project) throw notFound(ref);
      // Access to a sandbox without isolation is access to the host.
      requireMayHave(principal, row.spec.runtime, row.runtime);
      return row;
    },
    async reload({ id }) {
      const row = await sandboxes.get(id);
      if (!row) throw notFound(id);
      return row;
    },
    show: async (row) => show(row, hasToken(row) ? await tokenEpochs.ofProject(row.project) : 0),
    async showAll(rows) {
      const epochs = new Map<string, number>();
      for (const { project } of rows.filter(hasToken))
        if (!epochs.has(project)) epochs.set(project, await tokenEpochs.ofProject(project));
      return rows.map((row) => show(row, epochs.get(row.project) ?? 0));
    },
  };
}

const hasToken = ({ ports }: SandboxRow) => ports.some(({ visibility }) => visibility === 'private');
