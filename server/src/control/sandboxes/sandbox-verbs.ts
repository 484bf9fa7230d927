import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { logThrottle } from '../../lib/log-throttle.ts';
import { requireLimits } from '../../policy/bound-limits.ts';
import type { Context } from '../context.ts';
import type { SandboxVerbs } from './sandbox.ts';
import type { Idling } from '../pausing/idle-policy.ts';
import { formatCursor, parseCursor, parseLabels } from '../listing.ts';
import type { Pausing } from '../pausing/pausing.ts';
import type { PreviewTokens } from '../tenants/preview-tokens.ts';
import type { Principal } from '../tenants/principal.ts';
import { recorded, type SandboxRow } from '../../records/sandboxes.ts';
import type { Resizing } from './resize-sandbox.ts';
import type { Retaining } from '../snapshots/retention.ts';
import { notForVisitors, type GuestAccess } from './guest-access.ts';

const MAX_PORTS = 64;
/** A page is many requests, and is opened once. */
const PREVIEW_NOTED_EVERY_MS = 60_000;

export interface SandboxVerbParts {
  pausing: Pausing;
  guestAccess: GuestAccess;
  idling: Idling;
  resizing: Resizing;
  retaining: Retaining;
  previews: PreviewTokens;
}

export function sandboxVerbs(
  context: Context,
  { pausing, guestAccess, idling, resizing, retaining, previews }: SandboxVerbParts,
): Omit<SandboxVerbs, 'create' | 'validate'> {
  const {
    activity,
    again,
    backend,
    database,
    operations,
    find,
    lifecycle,
    note,
    policy,
    pressure,
    quota,
    sandboxes,
    show,
  } = context;
  const opened = logThrottle({ everyMs: PREVIEW_NOTED_EVERY_MS });
  /** Those of visitors, by project. */
  const connections = new Map<string, number>();
  quota.counts('previewConnections', 'open', (project) => connections.get(project) ?? 0);

  /** Records a change together with its event. */
  function changed(
    principal: Principal,
    type: string,
    data: Record<string, unknown>,
    id: SandboxId,
    changes: Parameters<typeof sandboxes.update>[1],
  ): SandboxRow {
    return database.transaction(() => {
      const updated = sandboxes.update(id, changes);
      note(type, updated, principal, data);
      return updated;
    });
  }

  return {
    get: (principal, ref) => show(find(principal, ref)),
    attend: (principal, ref) => activity.within(find(principal, ref).id, 'client'),

    list(principal, query) {
      const labels = parseLabels(query.label);
      const after = query.cursor === undefined ? undefined : parseCursor(query.cursor);
      const rows = sandboxes.list({
        project: principal.project,
        state: query.state,
        labels,
        after,
        limit: query.limit + 1,
      });
      const page = rows.slice(0, query.limit);
      const last = rows.length > query.limit ? page.at(-1) : undefined;
      return { sandboxes: page.map(show), nextCursor: last ? formatCursor(last) : null };
    },

    async update(principal, ref, changes) {
      const { id } = find(principal, ref);
      if (changes.timeoutMs !== undefined) requireLimits(policy, { timeoutMs: changes.timeoutMs });
      return operations.run(id, async () => {
        let row = again(find(principal, id));
        if (changes.limits) row = await pausing.present(row, { running: true });
        const record = (resized: Partial<SandboxRow> = {}) =>
          changed(principal, 'sandbox.updated', { fields: Object.keys(changes) }, id, {
            labels: changes.labels,
            onTimeout: changes.onTimeout,
            onBoot: changes.onBoot,
            ...(changes.idle && { idle: recorded(changes.idle) }),
            ...(changes.retention && { retention: recorded(changes.retention) }),
            ...resized,
            ...(changes.timeoutMs !== undefined && {
              timeoutMs: changes.timeoutMs,
              expiresAtMs:
                row.state === 'active' ? lifecycle.expiryOf({ timeoutMs: changes.timeoutMs }) : null,
            }),
          });
        const updated = changes.limits ? await resizing.resize(row, changes.limits, record) : record();
        lifecycle.expiry.changed();
        if (changes.idle) idling.changed();
        if (changes.retention) retaining.changed(id);
        return show(updated);
      });
    },

    async start(principal, ref) {
      const found = find(principal, ref);
      return operations.run(found.id, async () => {
        const row = again(found);
        // It may have ended, and that could not be recorded.
        if (row.state === 'active' && (await backend.observe(row.id)).phase === 'ready') return show(row);
        if (row.state === 'paused') return show(await pausing.present(row, { running: true }));
        if (row.state !== 'active' && row.state !== 'stopped' && row.state !== 'failed') {
          throw new CayError(
            'failed_precondition',
            `Sandbox "${row.id}" is ${row.state} and cannot be started`,
            {
              details: { state: row.state },
            },
          );
        }
        const { cpus, memoryBytes, pids } = row.spec.limits;
        // Its disk and its number are counted already.
        const limits = { cpus, memoryBytes, diskBytes: 0, pids };
        quota.require(row.project, { sandboxes: 0, limits });
        pressure.admit({ memoryBytes, diskBytes: null }, { platform: row.spec.platform });
        const tell = (active: SandboxRow) => note('sandbox.started', active, principal);
        return show(await quota.reserving(row, limits, () => lifecycle.activate(row, tell)));
      });
    },

    async stop(principal, ref, { graceMs } = {}) {
      const found = find(principal, ref);
      return operations.run(found.id, async () => {
        const row = await pausing.halted(again(found));
        return show(await lifecycle.stop(row, principal, { cause: 'request', graceMs }));
      });
    },

    async remove(principal, ref, { onIntent } = {}) {
      let found: SandboxRow;
      try {
        found = find(principal, ref);
      } catch (error) {
        if (error instanceof CayError && error.code === 'not_found') return;
        throw error;
      }
      await operations.declare(found.id, 'remove', () =>
        operations.run(found.id, async () => {
          const row = sandboxes.get(found.id);
          if (row) await lifecycle.destroy(row, principal, 'request', { onIntent });
        }),
      );
    },

    enter: (principal, ref) => guestAccess.enter(find(principal, ref).id),

    async expose(principal, ref, port) {
      const row = find(principal, ref);
      const others = row.ports.filter((other) => other.port !== port.port);
      if (others.length >= MAX_PORTS)
        throw new CayError('resource_exhausted', `Sandbox "${row.id}" exposes ${MAX_PORTS} ports already`);
      return show(changed(principal, 'port.exposed', { ...port }, row.id, { ports: [...others, port] }));
    },

    async unexpose(principal, ref, port) {
      const row = find(principal, ref);
      return show(
        changed(principal, 'port.hidden', { port }, row.id, {
          ports: row.ports.filter((other) => other.port !== port),
        }),
      );
    },

    async preview(id, port, token) {
      const row = sandboxes.get(id);
      const exposed = row?.ports.find((candidate) => candidate.port === port);
      // One answer for all that is hidden: it tells a stranger nothing.
      const hidden = () =>
        new CayError('not_found', 'There is no preview here, or the preview token is missing or wrong');
      // Also looked at where nothing is: how long an answer takes tells nothing either.
      const fits = previews.matches(id, port, token ?? '');
      if (!row || !exposed || (exposed.visibility === 'private' && !fits)) throw hidden();
      if (row.state !== 'active' && row.state !== 'paused') throw notForVisitors();
      if (opened.happens(`${id}:${port}`).first)
        note('preview.opened', row, undefined, { port, visibility: exposed.visibility });
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
