import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';
import { LABELS } from './container-config.ts';
import { formatContainerName, parseContainerName, type ContainerName } from './container-name.ts';
import { observationOf, type ContainerInspect } from './container-state.ts';
import type { DockerClient } from './docker-client.ts';
import { waitForContainer } from './wait-for-container.ts';

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
  /** One container, whether it is the sandbox's or not. */
  look(id: SandboxId, container: string, options?: CallScope): Promise<Found | undefined>;
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
  /** Removes every container of the sandbox. */
  removeAll(id: SandboxId, options?: CallScope): Promise<void>;
  /**
   * Runs a rollback, during which a sandbox has two containers. At any other time a second container is left
   * over from an earlier server, and is removed.
   */
  replacing<T>(id: SandboxId, rollback: () => Promise<T>): Promise<T>;
  /** From now on this container is the sandbox's. */
  adopt(id: SandboxId, container: string): void;
  /** The next look asks the engine which container is the sandbox's. */
  forget(id: SandboxId): void;
}

/** What is read of `GET /containers/json`. */
interface ContainerSummary {
  Id: string;
  Names: string[];
  State: string;
  Labels: Record<string, string>;
}

interface Named extends ContainerSummary {
  name: ContainerName | undefined;
}

const REMOVAL_MS = 60_000;

export function dockerContainers(client: DockerClient, installation: string): Containers {
  /** The ids of containers. An id never changes, so it is looked up once. */
  const known = new Map<SandboxId, string>();

  const list = (labels: string[], action: string, signal?: AbortSignal) =>
    listContainers(client, [`${LABELS.installation}=${installation}`, ...labels], action, signal);
  const rename = renameContainer.bind(undefined, client);
  const inspect = inspectContainer.bind(undefined, client);
  const replaced = new Set<SandboxId>();

  /** Finishes or undoes a rollback that an earlier server was in the middle of. */
  async function settle(id: SandboxId, all: readonly Named[]): Promise<Named | undefined> {
    const current = currentOf(all);
    const marked = current?.name?.mark === 'next' || current?.name?.mark === 'old';
    if (!current || replaced.has(id) || (all.length === 1 && !marked)) return current;
    const isPaused = current.State === 'paused';
    if (isPaused)
      await client.json('POST', `/containers/${current.Id}/unpause`, {
        action: `thaw sandbox "${id}"`,
        allow: [404, 409],
      });
    let { name } = current;
    if (marked && name) {
      const isRunning = current.State === 'running' || isPaused;
      const settled = { id, incarnation: name.incarnation, ...(!isRunning && { mark: 'stopping' as const }) };
      await rename({ container: current.Id, name }, settled);
      name = settled;
    }
    for (const { Id } of all) if (Id !== current.Id) await remove(id, Id);
    return {
      ...current,
      ...(isPaused && { State: 'running' }),
      ...(name && { name, Names: [`/${formatContainerName(name)}`] }),
    };
  }

  async function remove(id: SandboxId, container: string): Promise<void> {
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
    if (known.get(id) === container) known.delete(id);
  }

  async function observe(summary: Named, signal?: AbortSignal): Promise<Observation | undefined> {
    const seen = observationOfSummary(summary);
    if (seen) return seen;
    // Only an inspect says why it ended.
    const found = await inspect(summary.Labels[LABELS.sandbox] as SandboxId, summary.Id, signal);
    return found && observationOf(found.name, found.inspect);
  }

  return {
    async find(id, { signal } = {}) {
      const cached = known.get(id);
      const found = cached && (await inspect(id, cached, signal));
      if (found) return found;
      known.delete(id);
      const all = await list([`${LABELS.sandbox}=${id}`], `look for sandbox "${id}"`, signal);
      const summary = await settle(id, all);
      if (!summary) return undefined;
      known.set(id, summary.Id);
      return inspect(id, summary.Id, signal);
    },

    look: (id, container, { signal } = {}) => inspect(id, container, signal),

    async observeAll({ signal } = {}) {
      const all = await list([LABELS.sandbox], 'list sandboxes', signal);
      const bySandbox = Map.groupBy(all, ({ Labels }) => Labels[LABELS.sandbox] as SandboxId);
      const summaries: Named[] = [];
      for (const [id, some] of bySandbox) {
        const current = await settle(id, some);
        if (current) summaries.push(current);
      }
      const observations = summaries.map((summary) => observe(summary, signal));
      return (await Promise.all(observations)).filter((observation) => observation !== undefined);
    },

    async create(name, config, { signal } = {}) {
      const made = (await client.json('POST', '/containers/create', {
        action: `create sandbox "${name.id}"`,
        query: { name: formatContainerName(name) },
        body: config,
        signal,
      })) as { Id: string };
      if (name.mark !== 'next') known.set(name.id, made.Id);
      return made.Id;
    },

    async start(id, container, { signal } = {}) {
      await client.json('POST', `/containers/${container}/start`, {
        action: `start sandbox "${id}"`,
        signal,
      });
    },

    rename,

    async kill({ container, name }) {
      // 409: it is not running any more.
      await client.json('POST', `/containers/${container}/kill`, {
        action: `kill sandbox "${name.id}"`,
        query: { signal: 'KILL' },
        allow: [404, 409],
      });
    },

    ended: (found, withinMs) => waitForContainer(client, found, withinMs),

    remove,

    async removeAll(id, { signal } = {}) {
      const all = await list([`${LABELS.sandbox}=${id}`], `remove sandbox "${id}"`, signal);
      for (const { Id } of all) await remove(id, Id);
      known.delete(id);
    },

    async replacing(id, rollback) {
      replaced.add(id);
      try {
        return await rollback();
      } finally {
        replaced.delete(id);
      }
    },

    adopt: (id, container) => void known.set(id, container),

    forget: (id) => void known.delete(id),
  };
}

async function listContainers(
  client: DockerClient,
  labels: string[],
  action: string,
  signal?: AbortSignal,
): Promise<Named[]> {
  const found = (await client.json('GET', '/containers/json', {
    action,
    query: { all: true, filters: JSON.stringify({ label: labels }) },
    signal,
  })) as ContainerSummary[];
  return found.map((each) => ({ ...each, name: parseContainerName(each.Names[0] ?? '') }));
}

async function renameContainer(
  client: DockerClient,
  found: Pick<Found, 'container' | 'name'>,
  name: ContainerName,
  { signal }: CallScope = {},
): Promise<void> {
  const wanted = formatContainerName(name);
  if (wanted === formatContainerName(found.name)) return;
  await client.json('POST', `/containers/${found.container}/rename`, {
    action: `record the status of sandbox "${name.id}"`,
    query: { name: wanted },
    signal,
  });
}

async function inspectContainer(
  client: DockerClient,
  id: SandboxId,
  container: string,
  signal?: AbortSignal,
): Promise<Found | undefined> {
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

/**
 * The container of the sandbox, of several. The old one is marked `old` when the new one is ready: from then
 * on the new one is the container of the sandbox.
 */
function currentOf(all: readonly Named[]): Named | undefined {
  const rank = ({ name }: Named) => (name?.mark === 'old' ? 2 : name?.mark === 'next' ? 1 : 0);
  return all.toSorted((one, other) => rank(one) - rank(other))[0];
}

/**
 * What the list says about a container that runs or that we have stopped. Undefined if only an inspect can
 * tell.
 */
function observationOfSummary({ Id, name, State, Labels }: Named): Observation | undefined {
  const running = State === 'running' || State === 'paused';
  if (!name || (!running && name.mark !== 'stopping')) return undefined;
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
