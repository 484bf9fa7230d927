import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { logThrottle } from '../../lib/log-throttle.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { Principal } from '../tenants/principal.ts';
import type { GuestAccess } from './guest-access.ts';
import { notRunningForVisitors } from './not-running.ts';
import type { SandboxVerbs } from './sandbox.ts';

const MAX_PORTS = 64;
/** A page is many requests, and is one event. */
const PREVIEW_EVENT_EVERY_MS = 60_000;

/** Exposed ports, and the previews that visitors open on them. */
export function portVerbs({
  activity,
  lookup,
  previews,
  quota,
  recordEvent,
  records,
  guestAccess,
}: Pick<Core, 'activity' | 'lookup' | 'previews' | 'quota' | 'recordEvent' | 'records'> & {
  guestAccess: GuestAccess;
}): Pick<SandboxVerbs, 'expose' | 'unexpose' | 'preview' | 'previewConnection'> {
  const opened = logThrottle({ everyMs: PREVIEW_EVENT_EVERY_MS });
  /** Connections of visitors, by project. */
  const connections = new Map<string, number>();
  quota.counts('previewConnections', 'open', (project) => connections.get(project) ?? 0);

  /** Reads the ports in the transaction that writes them: of two changes at once none is lost. */
  async function setPorts(
    principal: Principal,
    ref: string,
    change: (ports: SandboxRow['ports'], id: SandboxId) => SandboxRow['ports'],
    event: { type: string; data: Record<string, unknown> },
  ) {
    const { id } = await lookup.find(principal, ref);
    const changed = await records.transaction(async (tx) => {
      const row = await tx.sandboxes.get(id);
      if (!row) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
      const updated = await tx.sandboxes.update(id, { ports: change(row.ports, id) });
      await recordEvent(tx, event.type, updated, principal, event.data);
      return updated;
    });
    return lookup.show(changed);
  }

  /** The sandbox, if the port is exposed to this visitor. One error for every other case reveals nothing. */
  async function requireExposed(id: SandboxId, port: number, token: string | undefined): Promise<SandboxRow> {
    const row = await records.sandboxes.get(id);
    const exposed = row?.ports.find((candidate) => candidate.port === port);
    // Also checked for a sandbox that does not exist: the time of the answer reveals nothing either.
    const epoch = await records.tokenEpochs.ofSandbox(id);
    const isValid = previews.matches(id, port, epoch, token ?? '');
    if (!row || !exposed || (exposed.visibility === 'private' && !isValid))
      throw new CayError('not_found', 'There is no preview here, or the preview token is missing or wrong');
    if (row.state !== 'active' && row.state !== 'paused') throw notRunningForVisitors();
    if (opened.happens(`${id}:${port}`).first)
      await recordEvent(records, 'preview.opened', row, undefined, { port, visibility: exposed.visibility });
    return row;
  }

  return {
    expose(principal, ref, port) {
      const event = { type: 'port.exposed', data: { ...port } };
      const change = (ports: SandboxRow['ports'], id: SandboxId) => {
        const others = ports.filter((other) => other.port !== port.port);
        if (others.length < MAX_PORTS) return [...others, port];
        throw new CayError('resource_exhausted', `Sandbox "${id}" exposes ${MAX_PORTS} ports already`, {
          hint: 'hide a port first',
        });
      };
      return setPorts(principal, ref, change, event);
    },

    unexpose(principal, ref, port) {
      const event = { type: 'port.hidden', data: { port } };
      return setPorts(principal, ref, (ports) => ports.filter((other) => other.port !== port), event);
    },

    async preview(id, port, token) {
      await requireExposed(id, port, token);
      activity.touch(id);
      return guestAccess.guest(id, 'preview');
    },

    async previewConnection(id) {
      const project = (await records.sandboxes.get(id))?.project ?? '';
      for (;;) {
        const most = await quota.limit(records, project, 'previewConnections');
        // From here on nothing is awaited: of two connections one counts before the other is admitted.
        if (most === null || (connections.get(project) ?? 0) < most) break;
        await quota.requireRoom(records, project, 'previewConnections', 1);
      }
      connections.set(project, (connections.get(project) ?? 0) + 1);
      let open = true;
      return {
        [Symbol.dispose]() {
          if (!open) return;
          open = false;
          const left = connections.get(project)! - 1;
          if (left > 0) connections.set(project, left);
          else connections.delete(project);
        },
      };
    },
  };
}
