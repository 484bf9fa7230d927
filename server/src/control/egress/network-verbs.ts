import {
  CayError,
  type EgressAttempt,
  type NetworkPolicy,
  type SandboxId,
  type SandboxNetwork,
} from '@cay/sdk/protocol';
import { inBackground } from '../../lib/in-background.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { requireSecrets } from '../secrets/require-secrets.ts';
import { secretsIn } from '../secrets/secrets-in.ts';
import type { GuestAccess } from '../sandboxes/guest-access.ts';
import type { Principal } from '../tenants/principal.ts';
import { openApprovals } from './approvals.ts';
import { deniedSince } from './denied-since.ts';
import { openAttemptFeeds } from './attempt-feeds.ts';
import { openDenialEvents } from './denial-events.ts';
import { peerAccess } from './peer-access.ts';
import type { NetworkVerbs } from './network.ts';
import { shownPolicy, withRules } from './network-policies.ts';

/** Totals since the server started. */
export interface NetworkCounts {
  attempts: Record<EgressAttempt['verdict'], number>;
  bytes: { in: number; out: number };
  /** Connections that were refused or cut because their project is at its quota. */
  overQuota: number;
}

export interface OpenedNetworkVerbs {
  readonly verbs: NetworkVerbs;
  counts(): NetworkCounts;
  close(): Promise<void>;
}

/** After these the policy of a sandbox, or its networks, may be another. */
const CHANGES = new Set(['sandbox.created', 'sandbox.updated', 'sandbox.removed']);

export function openNetworkVerbs({
  activity,
  backend,
  clock,
  egress,
  enforcement,
  guestAccess,
  lookup,
  networks,
  onError,
  operations,
  recordEvent,
  records,
  shared,
}: Pick<
  Core,
  | 'activity'
  | 'backend'
  | 'clock'
  | 'egress'
  | 'enforcement'
  | 'lookup'
  | 'networks'
  | 'onError'
  | 'operations'
  | 'recordEvent'
  | 'records'
> & {
  guestAccess: GuestAccess;
  /** Whether other servers change the same records. */
  shared: boolean;
}): OpenedNetworkVerbs {
  const attempts = openAttemptFeeds();
  const counts: Omit<NetworkCounts, 'overQuota'> = {
    attempts: { allowed: 0, denied: 0, failed: 0 },
    bytes: { in: 0, out: 0 },
  };

  /** An event of a sandbox that may be gone by now. */
  async function write(id: SandboxId, type: string, data: Record<string, unknown>): Promise<void> {
    const row = await records.sandboxes.get(id);
    if (row) await recordEvent(records, type, row, undefined, data);
  }
  const denials = openDenialEvents((id, data) => inBackground(write(id, 'network.denied', data), onError));
  const approvals = openApprovals({
    now: clock.now,
    onAsked: ({ id, sandboxId, name, address, port, rule, expiresAt }) =>
      inBackground(
        write(sandboxId, 'network.asked', {
          approval: id,
          target: `${name ?? address}:${port}`,
          rule,
          expiresAt,
        }),
        onError,
      ),
  });

  egress?.listen({
    ask: approvals.ask,
    secrets: networks.secretsOf,
    peers: peerAccess({ activity, backend, clock, guestAccess, records }),
    onAttempt(attempt) {
      counts.attempts[attempt.verdict]++;
      counts.bytes.in += attempt.bytesIn;
      counts.bytes.out += attempt.bytesOut;
      attempts.send(attempt);
      if (attempt.verdict === 'denied') denials.add(attempt);
    },
  });

  const unlisten = shared
    ? records.events.listen(({ type, sandbox, project }) => {
        if (sandbox !== null && CHANGES.has(type))
          inBackground(networks.apply(sandbox as SandboxId), onError);
        else if (type === 'project.updated' && project !== null)
          inBackground(networks.applyAll(project), onError);
      })
    : undefined;

  const show = (row: SandboxRow) => shownNetwork({ egress, records }, row);

  async function change(
    principal: Principal,
    ref: string,
    decide: (before: NetworkPolicy) => NetworkPolicy,
  ): Promise<SandboxNetwork> {
    const { id } = await lookup.find(principal, ref);
    return operations.enqueue(id, async () => {
      const before = await lookup.find(principal, id);
      const network = networks.checked(decide(before.network ?? 'none'));
      if (secretsIn(network).length > 0)
        await enforcement.requireNotFailed(before.backend, 'a rule with a secret');
      const row = await records.transaction(async (tx) => {
        await requireSecrets(tx, before.project, network);
        const updated = await tx.sandboxes.update(id, { network });
        await recordEvent(tx, 'sandbox.updated', updated, principal, { fields: ['network'] });
        return updated;
      });
      await networks.apply(id);
      return show(row);
    });
  }

  const verbs: NetworkVerbs = {
    carries: egress !== undefined,
    get: async (principal, ref) => show(await lookup.find(principal, ref)),
    set: (principal, ref, policy) => change(principal, ref, () => policy),
    add: (principal, ref, rules) =>
      change(principal, ref, (before) => {
        // In the form that they are recorded in, so that the same rule is found.
        const { allow = [], deny = [] } = networks.checked({ ...rules }) as Exclude<NetworkPolicy, string>;
        return withRules(before, { allow, deny });
      }),
    async attempts(principal, ref) {
      const { id } = await lookup.find(principal, ref);
      return egress?.engine.attempts(id) ?? [];
    },
    async follow(principal, ref, { signal }) {
      const { id } = await lookup.find(principal, ref);
      return attempts.follow(id, signal);
    },
    async pending(principal, ref) {
      return approvals.pending((await lookup.find(principal, ref)).id);
    },
    async answer(principal, ref, approval, { verdict, forMs }) {
      const row = await lookup.find(principal, ref);
      const waiting = approvals.take(row.id, approval);
      if (!waiting)
        throw new CayError(
          'not_found',
          `No attempt "${approval}" of sandbox "${row.id}" waits for an answer`,
          {
            hint: 'it was answered, or its time is over; allow the target in the network policy instead',
          },
        );
      const { rule } = waiting.approval;
      if (verdict === 'allow') egress!.engine.grant(row.id, rule, clock.now() + forMs);
      waiting.answer(verdict);
      await recordEvent(records, 'network.answered', row, principal, {
        approval,
        rule,
        verdict,
        ...(verdict === 'allow' && { forMs }),
      });
    },
    deniedSince: (id, sinceMs) => deniedSince(egress?.engine, id, sinceMs),
  };

  return {
    verbs,
    counts: () => ({ ...counts, overQuota: egress?.engine.projects.refused() ?? 0 }),
    async close() {
      unlisten?.();
      attempts.close();
      denials.close();
    },
  };
}

async function shownNetwork(
  { egress, records }: Pick<Core, 'egress' | 'records'>,
  row: SandboxRow,
): Promise<SandboxNetwork> {
  const project = await records.projects.get(row.project);
  return {
    policy: shownPolicy(row.network ?? 'none'),
    template: row.templateNetwork && shownPolicy(row.templateNetwork),
    project: project?.network ? shownPolicy(project.network) : null,
    installation: shownPolicy(egress?.maximum ?? 'none'),
    stats: egress?.engine.stats(row.id) ?? null,
  };
}
