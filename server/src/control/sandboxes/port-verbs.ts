import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { logThrottle } from '../../lib/log-throttle.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { Core } from '../core.ts';
import type { PreviewTokens } from '../tenants/preview-tokens.ts';
import type { Principal } from '../tenants/principal.ts';
import type { GuestAccess } from './guest-access.ts';
import { notRunningForVisitors } from './not-running.ts';
import type { StateRecorder } from './record-state.ts';
import type { SandboxVerbs } from './sandbox.ts';

const MAX_PORTS = 64;
/** A page is many requests, and is one event. */
const PREVIEW_EVENT_EVERY_MS = 60_000;

/** Exposed ports, and the previews that visitors open on them. */
export function portVerbs({
  activity,
  lookup,
  quota,
  recordEvent,
  records: { sandboxes },
  guestAccess,
  previews,
  state,
}: Pick<Core, 'activity' | 'lookup' | 'quota' | 'recordEvent' | 'records'> & {
  guestAccess: GuestAccess;
  previews: PreviewTokens;
  state: StateRecorder;
}): Pick<SandboxVerbs, 'expose' | 'unexpose' | 'preview' | 'previewConnection'> {
  const opened = logThrottle({ everyMs: PREVIEW_EVENT_EVERY_MS });
  /** Connections of visitors, by project. */
  const connections = new Map<string, number>();
  quota.counts('previewConnections', 'open', (project) => connections.get(project) ?? 0);

  function setPorts(
    row: SandboxRow,
    ports: SandboxRow['ports'],
    principal: Principal,
    event: { type: string; data: Record<string, unknown> },
  ) {
    return lookup.show(
      state.change(row, { ports }, (changed) => recordEvent(event.type, changed, principal, event.data)),
    );
  }

  /** The sandbox, if the port is exposed to this visitor. One error for every other case reveals nothing. */
  function requireExposed(id: SandboxId, port: number, token: string | undefined): SandboxRow {
    const row = sandboxes.get(id);
    const exposed = row?.ports.find((candidate) => candidate.port === port);
    // Also checked for a sandbox that does not exist: the time of the answer reveals nothing either.
    const isValid = previews.matches(id, port, token ?? '');
    if (!row || !exposed || (exposed.visibility === 'private' && !isValid))
      throw new CayError('not_found', 'There is no preview here, or the preview token is missing or wrong');
    if (row.state !== 'active' && row.state !== 'paused') throw notRunningForVisitors();
    if (opened.happens(`${id}:${port}`).first)
      recordEvent('preview.opened', row, undefined, { port, visibility: exposed.visibility });
    return row;
  }

  return {
    async expose(principal, ref, port) {
      const row = lookup.find(principal, ref);
      const others = row.ports.filter((other) => other.port !== port.port);
      if (others.length >= MAX_PORTS)
        throw new CayError('resource_exhausted', `Sandbox "${row.id}" exposes ${MAX_PORTS} ports already`, {
          hint: 'hide a port first',
        });
      return setPorts(row, [...others, port], principal, { type: 'port.exposed', data: { ...port } });
    },

    async unexpose(principal, ref, port) {
      const row = lookup.find(principal, ref);
      const others = row.ports.filter((other) => other.port !== port);
      return setPorts(row, others, principal, { type: 'port.hidden', data: { port } });
    },

    async preview(id, port, token) {
      requireExposed(id, port, token);
      activity.touch(id);
      return guestAccess.guest(id, 'preview');
    },

    previewConnection(id) {
      const project = sandboxes.get(id)?.project ?? '';
      quota.requireRoom(project, 'previewConnections', 1);
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
