/** Gives the egress the policies of sandboxes, from what is recorded. */
import { isDeepStrictEqual } from 'node:util';
import { CayError, type NetworkPolicy, type SandboxId } from '@cay/sdk/protocol';
import { compilePolicy, normalizePolicy } from '../../egress/policy/compile-policy.ts';
import type { BrokeredSecret } from '../../egress/broker/broker.ts';
import type { StartedEgress } from '../../egress/start-egress.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import type { Records } from '../../records/records.ts';
import { openBrokeredSecrets } from '../secrets/brokered-secrets.ts';
import type { Projects } from '../tenants/projects.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';

export interface Networks {
  /**
   * The policy of a new sandbox: what is asked for, or `inherited`, or the operator's default. Throws
   * `invalid_argument` if a rule cannot be read, `unsupported` where nothing is carried.
   */
  policyFor(asked: NetworkPolicy | undefined, inherited?: NetworkPolicy | null): NetworkPolicy;
  /** Checks a policy and writes it in its canonical form. Throws as `policyFor` does. */
  checked(policy: NetworkPolicy): NetworkPolicy;
  /**
   * Gives the egress what is recorded for a sandbox. Call it before the sandbox can connect, and after each
   * change. A sandbox that is recorded no more reaches nothing.
   */
  apply(id: SandboxId): Promise<void>;
  /** Those of a project, or of all. */
  applyAll(project?: string): Promise<void>;
  /** Uses the present values of a project's secrets from the next request on. */
  refreshSecrets(project: string): Promise<void>;
  /** The secrets that may be put on requests of a sandbox. */
  secretsOf(id: SandboxId): readonly BrokeredSecret[];
  /** The variables that rules give to programs, with placeholders as values. */
  environmentOf(id: SandboxId): Record<string, string>;
  /** Where the server speaks SSH with a stored key, as `known_hosts` has it. */
  sshTargetsOf(id: SandboxId): readonly string[];
  forget(id: SandboxId): void;
}

export function openNetworks({
  egress,
  records,
  projects,
  quota,
  onError,
}: {
  egress: StartedEgress | undefined;
  records: Records;
  projects: Pick<Projects, 'get'>;
  quota: Pick<QuotaLedger, 'counts'>;
  onError(error: unknown): void;
}): Networks {
  /** The later of two changes must win, so they run one after the other, and each reads the records again. */
  const queue = new KeyedQueue<SandboxId>();
  if (egress) {
    const { taken } = egress.engine.projects;
    quota.counts('egressConnections', 'open', (project) => taken(project).connections);
    quota.counts('egressBufferBytes', 'held', (project) => taken(project).bytes);
  }
  let derivedFrom: Promise<Uint8Array> | undefined;
  const secrets = openBrokeredSecrets(records, () => (derivedFrom ??= records.secrets.get('placeholders')));

  async function applyNow(id: SandboxId, { engine, maximum }: StartedEgress): Promise<void> {
    const row = await records.sandboxes.get(id);
    if (!row) return forget(id);
    const project = await projects.get(records, row.project);
    if (project) {
      const { egressConnections: connections, egressBufferBytes: bytes } = project.effectiveQuota;
      engine.projects.limit(row.project, { connections, bytes });
    }
    const hostname = (row.name ?? row.id).replaceAll('_', '-').toLowerCase();
    engine.networks.set(id, { project: row.project, hostname, networks: row.networks });
    const bounds = [row.templateNetwork, project?.network ?? null, maximum];
    const layers = [row.network ?? 'none', ...bounds.filter((bound) => bound !== null)];
    // Before the rules that put them on requests.
    await secrets.load(id, row.project, layers);
    if (isDeepStrictEqual(engine.policies.get(id), layers)) return;
    try {
      engine.policies.set(id, layers, { project: row.project });
    } catch (error) {
      // What cannot be read allows nothing.
      engine.policies.remove(id);
      throw error;
    }
  }

  function forget(id: SandboxId): void {
    egress?.engine.policies.remove(id);
    secrets.forget(id);
  }

  function checked(policy: NetworkPolicy): NetworkPolicy {
    if (!egress && policy !== 'none')
      throw new CayError('unsupported', 'This server carries no connections out of sandboxes', {
        hint: 'the network policy "none" is what there is',
      });
    compilePolicy(policy);
    return normalizePolicy(policy);
  }

  const networks: Networks = {
    checked,
    policyFor: (asked, inherited) =>
      asked === undefined && !egress ? 'none' : checked(asked ?? inherited ?? egress!.usual),
    apply: async (id) => egress && queue.run(id, () => applyNow(id, egress)),
    async applyAll(project) {
      if (!egress) return;
      const rows = await records.sandboxes.list(project === undefined ? {} : { project });
      for (const { id } of rows) await networks.apply(id).catch(onError);
    },
    refreshSecrets: secrets.refresh,
    secretsOf: secrets.of,
    environmentOf: secrets.environment,
    sshTargetsOf: secrets.sshTargets,
    forget,
  };
  return networks;
}
