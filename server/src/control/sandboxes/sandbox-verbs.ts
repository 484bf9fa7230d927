import { CayError, isCayError, type SandboxId } from '@cay/sdk/protocol';
import { requireLimits } from '../../policy/bound-limits.ts';
import { recorded, type SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { formatCursor, parseCursor, parseLabels } from '../listing.ts';
import type { Idling } from '../pausing/idle-policy.ts';
import type { Syncing } from '../buckets/syncing.ts';
import type { Waker } from '../pausing/wake.ts';
import type { Retaining } from '../snapshots/retention.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxDestroyer } from './destroy-sandbox.ts';
import type { Expiry } from './expiry.ts';
import type { GuestAccess } from './guest-access.ts';
import { stateWords } from './not-running.ts';
import type { OnRecord, StateRecorder } from './record-state.ts';
import type { Resizing } from './resize-sandbox.ts';
import type { SandboxVerbs } from './sandbox.ts';
import type { SandboxStarter } from './start-sandbox.ts';
import type { SandboxStopper } from './stop-sandbox.ts';

type Dependencies = Pick<
  Core,
  | 'activity'
  | 'backend'
  | 'lookup'
  | 'networks'
  | 'operations'
  | 'policy'
  | 'pressure'
  | 'quota'
  | 'recordEvent'
  | 'records'
> & {
  destroyer: SandboxDestroyer;
  expiry: Expiry;
  guestAccess: GuestAccess;
  idling: Idling;
  resizing: Resizing;
  retention: Retaining;
  starter: SandboxStarter;
  state: StateRecorder;
  stopper: SandboxStopper;
  syncing: Syncing;
  waker: Waker;
};

export function sandboxVerbs({
  activity,
  backend,
  lookup,
  networks: applyNetworks,
  operations,
  policy,
  pressure,
  quota,
  recordEvent,
  records,
  destroyer,
  expiry,
  guestAccess,
  idling,
  resizing,
  retention,
  starter,
  state,
  stopper,
  syncing,
  waker,
}: Dependencies): Pick<
  SandboxVerbs,
  'get' | 'list' | 'update' | 'start' | 'stop' | 'remove' | 'enter' | 'attend'
> {
  async function startInQueue(row: SandboxRow, principal: Principal): Promise<SandboxRow> {
    // An active sandbox may have ended without a record of that, if the disk was full.
    if (row.state === 'active' && (await backend.observe(row.id)).phase === 'ready') return row;
    if (row.state === 'paused') return waker.ensureAwake(row);
    if (row.state !== 'active' && row.state !== 'stopped' && row.state !== 'failed') {
      throw new CayError(
        'failed_precondition',
        `Cannot start sandbox "${row.id}": it ${stateWords(row.state)}`,
        {
          details: { state: row.state },
        },
      );
    }
    const { cpus, memoryBytes, pids } = row.spec.limits;
    // Its disk is counted already.
    const limits = { cpus, memoryBytes, diskBytes: 0, pids };
    const onRecord: OnRecord = (active, tx) => recordEvent(tx, 'sandbox.started', active, principal);
    return quota.reserving(row.project, { added: limits }, async (reserved) => {
      await pressure.admit({ memoryBytes, diskBytes: null }, { platform: row.spec.platform, reserved });
      return starter.start(row, onRecord);
    });
  }

  async function updateInQueue(
    row: SandboxRow,
    changes: Parameters<SandboxVerbs['update']>[2],
    principal: Principal,
  ): Promise<SandboxRow> {
    const { labels, limits, networks, onTimeout, onBoot, idle, retention, timeoutMs } = changes;
    const record = (resized: Partial<SandboxRow> = {}) => {
      const time = timeoutMs !== undefined && {
        timeoutMs,
        expiresAtMs: row.state === 'active' ? state.expiryOf({ timeoutMs }) : null,
      };
      const fields = {
        labels,
        networks,
        onTimeout,
        onBoot,
        ...(idle && { idle: recorded(idle) }),
        ...(retention && { retention: recorded(retention) }),
        ...resized,
        ...time,
      };
      return state.change(row, fields, (updated, tx) =>
        recordEvent(tx, 'sandbox.updated', updated, principal, { fields: Object.keys(changes) }),
      );
    };
    return limits ? resizing.resize(row, limits, record) : record();
  }

  return {
    get: async (principal, ref) => lookup.show(await lookup.find(principal, ref)),
    attend: async (principal, ref) => activity.hold((await lookup.find(principal, ref)).id, 'client'),
    enter: async (principal, ref) => guestAccess.enter((await lookup.find(principal, ref)).id),

    async list(principal, query, { allProjects = false } = {}) {
      const rows = await records.sandboxes.list({
        ...(!allProjects && { project: principal.project }),
        state: query.state,
        labels: parseLabels(query.label),
        after: query.cursor === undefined ? undefined : parseCursor(query.cursor),
        limit: query.limit + 1,
      });
      const page = rows.slice(0, query.limit);
      const last = rows.length > query.limit ? page.at(-1) : undefined;
      return { sandboxes: await lookup.showAll(page), nextCursor: last ? formatCursor(last) : null };
    },

    async update(principal, ref, changes) {
      const { id } = await lookup.find(principal, ref);
      if (changes.timeoutMs !== undefined) requireLimits(policy, { timeoutMs: changes.timeoutMs });
      return operations.enqueue(id, async () => {
        const found = await lookup.find(principal, id);
        const row = changes.limits ? await waker.ensureAwake(found) : found;
        const updated = await updateInQueue(row, changes, principal);
        expiry.changed();
        if (changes.idle) idling.changed();
        if (changes.networks) await applyNetworks.apply(id);
        if (changes.retention) retention.changed(id);
        return lookup.show(updated);
      });
    },

    async start(principal, ref) {
      const found = await lookup.find(principal, ref);
      return operations.enqueue(found.id, async () =>
        lookup.show(await startInQueue(await lookup.reload(found), principal)),
      );
    },

    async stop(principal, ref, { graceMs, force } = {}) {
      const found = await lookup.find(principal, ref);
      return operations.enqueue(found.id, async () => {
        const written = await syncing.beforeEnd(await lookup.reload(found), waker.ensureAwake, { force });
        const row = await waker.prepareStop(written);
        const stopped = await stopper.stop(row, principal, { cause: 'request', graceMs });
        await syncing.afterStop(stopped, { force });
        return lookup.show(stopped);
      });
    },

    async remove(principal, ref, { onIntent, force } = {}) {
      let id: SandboxId;
      try {
        // As other verbs that claim a sandbox do, with nothing in between: the first that came claims it
        // first.
        ({ id } = await lookup.find(principal, ref));
      } catch (error) {
        if (isCayError(error, 'not_found')) return;
        throw error;
      }
      await operations.claim(id, 'remove', () =>
        operations.enqueue(id, async () => {
          const row = await records.sandboxes.get(id);
          if (!row) return;
          const written =
            row.state === 'destroying' ? row : await syncing.beforeEnd(row, waker.ensureAwake, { force });
          await destroyer.destroy(written, principal, 'request', { onIntent });
          if (force) await syncing.afterStop(written, { force });
        }),
      );
    },
  };
}
