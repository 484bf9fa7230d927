import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';
import { LABELS } from './container-config.ts';
import { formatContainerName, parseContainerName, type ContainerName } from './container-name.ts';
import { observationOf, type ContainerInspect } from './container-state.ts';
import type { DockerClient } from './docker-client.ts';

export interface Found {
  container: string;
  name: ContainerName;
  inspect: ContainerInspect;
}

/**
 * The containers of one installation. Their labels say which sandbox each is, their names have its status.
 */
export interface Containers {
  find(id: SandboxId, options?: CallScope): Promise<Found | undefined>;
  observeAll(options?: CallScope): Promise<Observation[]>;
  /** Resolves with its id. Rejects `conflict` if there is one of that name. */
  create(name: ContainerName, config: object, options?: CallScope): Promise<string>;
  start(id: SandboxId, container: string, options?: CallScope): Promise<void>;
  rename(found: Pick<Found, 'container' | 'name'>, name: ContainerName, options?: CallScope): Promise<void>;
  kill(found: Pick<Found, 'container' | 'name'>): Promise<void>;
  /** Resolves whether it has ended within that time. */
  ended(found: Pick<Found, 'container' | 'name'>, withinMs: number): Promise<boolean>;
  /** Ends it, and removes it with its volumes. Resolves when it is gone. */
  remove(id: SandboxId, container: string): Promise<void>;
}

const REMOVAL_MS = 60_000;

export function dockerContainers(client: DockerClient, installation: string): Containers {
  /** The engine's id of a container never changes, so that one look is enough. */
  const known = new Map<SandboxId, string>();

  const filtered = (labels: string[]) => ({
    all: true,
    filters: JSON.stringify({ label: [`${LABELS.installation}=${installation}`, ...labels] }),
  });

  async function inspect(id: SandboxId, container: string, signal?: AbortSignal): Promise<Found | undefined> {
    const seen = (await client.json('GET', `/containers/${container}/json`, {
      action: `look at sandbox "${id}"`,
      signal,
      allow: [404],
    })) as ContainerInspect | undefined;
    if (!seen) return undefined;
    const name = parseContainerName(seen.Name);
    // If the container was renamed by hand, treat it as new.
    return { container, inspect: seen, name: name?.id === id ? name : { id, incarnation: 1 } };
  }

  return {
    async find(id, { signal } = {}) {
      const cached = known.get(id);
      const found = cached && (await inspect(id, cached, signal));
      if (found) return found;
      known.delete(id);
      const query = filtered([`${LABELS.sandbox}=${id}`]);
      const [summary] = (await client.json('GET', '/containers/json', {
        action: `look for sandbox "${id}"`,
        query,
        signal,
      })) as {
        Id: string;
      }[];
      if (!summary) return undefined;
      known.set(id, summary.Id);
      return inspect(id, summary.Id, signal);
    },

    async observeAll({ signal } = {}) {
      const query = filtered([LABELS.sandbox]);
      const summaries = (await client.json('GET', '/containers/json', {
        action: 'list sandboxes',
        query,
        signal,
      })) as {
        Id: string;
        Names: string[];
        State: string;
        Labels: Record<string, string>;
      }[];
      const observations = summaries.map(async ({ Id, Names, State, Labels }) => {
        const name = parseContainerName(Names[0] ?? '');
        const running = State === 'running' || State === 'paused';
        if (name && (running || name.mark === 'stopping')) {
          const state = {
            Status: State,
            Running: running,
            Paused: State === 'paused',
            OOMKilled: false,
            ExitCode: 0,
            Error: '',
          };
          return observationOf(name, {
            Id,
            State: state,
            HostConfig: { Runtime: Labels[LABELS.runtime] ?? '', Memory: 0 },
          });
        }
        // Only an inspect says why it ended.
        const found = await inspect(Labels[LABELS.sandbox] as SandboxId, Id, signal);
        return found && observationOf(found.name, found.inspect);
      });
      return (await Promise.all(observations)).filter((observation) => observation !== undefined);
    },

    async create(name, config, { signal } = {}) {
      const made = (await client.json('POST', '/containers/create', {
        action: `create sandbox "${name.id}"`,
        query: { name: formatContainerName(name) },
        body: config,
        signal,
      })) as { Id: string };
      known.set(name.id, made.Id);
      return made.Id;
    },

    async start(id, container, { signal } = {}) {
      await client.json('POST', `/containers/${container}/start`, {
        action: `start sandbox "${id}"`,
        signal,
      });
    },

    async rename(found, name, { signal } = {}) {
      const wanted = formatContainerName(name);
      if (wanted === formatContainerName(found.name)) return;
      await client.json('POST', `/containers/${found.container}/rename`, {
        action: `record the status of sandbox "${name.id}"`,
        query: { name: wanted },
        signal,
      });
    },

    async kill({ container, name }) {
      // 409: it is not running any more.
      await client.json('POST', `/containers/${container}/kill`, {
        action: `kill sandbox "${name.id}"`,
        query: { signal: 'KILL' },
        allow: [404, 409],
      });
    },

    async ended({ container, name }, withinMs) {
      const call = {
        action: `wait for the end of sandbox "${name.id}"`,
        query: { condition: 'not-running' },
        allow: [404],
      };
      const timeout = AbortSignal.timeout(withinMs);
      try {
        await client.json('POST', `/containers/${container}/wait`, {
          ...call,
          signal: timeout,
          timeoutMs: withinMs + 1000,
        });
        return true;
      } catch (error) {
        if (timeout.aborted) return false;
        throw error;
      }
    },

    async remove(id, container) {
      const action = `remove sandbox "${id}"`;
      const deadline = Date.now() + REMOVAL_MS;
      do {
        // 409: it is being removed already, by another client or by an earlier call that was cut off.
        await client.json('DELETE', `/containers/${container}`, {
          action,
          query: { force: true, v: true },
          allow: [404, 409],
        });
        if (!(await inspect(id, container))) break;
        await sleep(50);
      } while (Date.now() < deadline);
      known.delete(id);
    },
  };
}
