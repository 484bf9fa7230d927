/**
 * The secrets that the egress puts on requests of sandboxes, and the placeholders that stand for them inside.
 *
 * A placeholder belongs to a secret and not to a sandbox: forks and clones go on with the environment and the
 * memory of the sandbox that they come from.
 */
import { createHmac } from 'node:crypto';
import type { NetworkPolicy, SandboxId } from '@cay/sdk/protocol';
import type { BrokeredSecret } from '../../egress/broker/broker.ts';
import type { Tables } from '../../records/tables/tables.ts';
import { putsIn, secretsIn, sshTargetsIn } from './secrets-in.ts';

export interface BrokeredSecrets {
  /** Opens those that the layers of a sandbox name. */
  load(id: SandboxId, project: string, layers: readonly NetworkPolicy[]): Promise<void>;
  /** Opens those of a project again. */
  refresh(project: string): Promise<void>;
  of(id: SandboxId): readonly BrokeredSecret[];
  /** The variables that rules give to programs, with placeholders as values. */
  environment(id: SandboxId): Record<string, string>;
  /** Names and ports, as `known_hosts` has them, to which the server speaks SSH with a stored key. */
  sshTargets(id: SandboxId): readonly string[];
  forget(id: SandboxId): void;
}

interface Known {
  readonly project: string;
  readonly names: readonly string[];
  readonly variables: readonly { name: string; secret: string }[];
  readonly sshTargets: readonly string[];
  secrets: readonly BrokeredSecret[];
}

export function openBrokeredSecrets(
  records: Pick<Tables, 'storedSecrets'>,
  /** A secret of the installation that placeholders are derived from. */
  derivedFrom: () => Promise<Uint8Array>,
): BrokeredSecrets {
  const known = new Map<SandboxId, Known>();

  async function opened(project: string, names: readonly string[]): Promise<BrokeredSecret[]> {
    const key = await derivedFrom();
    const rows = await records.storedSecrets.open(project, names);
    return rows.map(({ id, name, value }) => {
      const digest = createHmac('sha256', key).update(id).digest('hex').slice(0, 32);
      return { name, value, placeholder: `cay-placeholder-${digest}` };
    });
  }

  return {
    async load(id, project, layers) {
      const names = secretsIn(...layers);
      if (names.length === 0) {
        known.delete(id);
        return;
      }
      const variables = layers
        .flatMap(putsIn)
        .flatMap(({ env: name, secret }) =>
          name === undefined || secret === undefined ? [] : { name, secret },
        );
      const sshTargets = layers.flatMap(sshTargetsIn);
      known.set(id, { project, names, variables, sshTargets, secrets: await opened(project, names) });
    },
    async refresh(project) {
      const of = [...known.values()].filter((one) => one.project === project);
      if (of.length === 0) return;
      const all = await opened(project, [...new Set(of.flatMap(({ names }) => names))]);
      for (const one of of) one.secrets = all.filter(({ name }) => one.names.includes(name));
    },
    of: (id) => known.get(id)?.secrets ?? [],
    environment(id) {
      const one = known.get(id);
      if (!one) return {};
      const pairs = one.variables.flatMap(({ name, secret }) => {
        const placeholder = one.secrets.find((each) => each.name === secret)?.placeholder;
        return placeholder === undefined ? [] : [[name, placeholder] as const];
      });
      return Object.fromEntries(pairs);
    },
    sshTargets: (id) => known.get(id)?.sshTargets ?? [],
    forget: (id) => void known.delete(id),
  };
}
