/**
 * The sandboxes of each project in a namespace of their own, beside that of the installation.
 *
 * Each namespace has a backend to itself, opened when its project makes its first sandbox or when somebody
 * looks for what there is. Nothing is kept of who is where: namespaces say by a label whose they are. In the
 * installation's own namespace no project has sandboxes: there the rights are tried when the server starts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxId } from '@cay/sdk/protocol';
import { Broadcast } from '../../../lib/broadcast.ts';
import {
  canFreeze,
  canSuspend,
  type Backend,
  type CallOptions,
  type Freezing,
  type Observation,
  type StopOptions,
  type Suspending,
  type Sweeping,
} from '../../backend.ts';
import { requireSandboxId } from '../../support/check.ts';
import { passOn } from '../../support/forward-observations.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { LABELS, projectNamespace } from '../client/names.ts';
import type { KubernetesObject, List } from '../client/objects.ts';
import type { Whereabouts } from '../pod-backend.ts';
import { inBackground } from '../../../lib/in-background.ts';

/** What a backend can besides, all of them of one kind can. */
type Room = Backend & Sweeping & Partial<Freezing & Suspending>;

export interface ProjectNamespacesOptions {
  client: KubernetesClient;
  /** Of the installation; those of projects are called after it. */
  namespace: string;
  installation: string;
  open(whereabouts: Whereabouts): Room;
  onError(error: unknown): void;
}

const AGAIN_MS = 5_000;

export function projectNamespaces({
  client,
  namespace,
  installation,
  open,
  onError,
}: ProjectNamespacesOptions): Backend & Sweeping {
  const rooms = new Map<string, Room>();
  const where = new Map<SandboxId, Room>();
  const changes = new Broadcast<Observation>();
  const closing = new AbortController();
  const common = room({ client, namespace, vacant: true });
  const labelSelector = `${LABELS.installation}=${installation},${LABELS.project}`;

  function room(whereabouts: Whereabouts): Room {
    let found = rooms.get(whereabouts.namespace);
    if (!found) {
      found = open(whereabouts);
      rooms.set(whereabouts.namespace, found);
      inBackground(follow(found), onError);
    }
    return found;
  }

  /** A namespace can be watched as soon as it is there, and we have rights in it. */
  async function follow(backend: Backend): Promise<void> {
    const { signal } = closing;
    const isUsable = () =>
      backend.capabilities().then(
        () => true,
        () => false, // told to whoever wants something there
      );
    while (!signal.aborted && !(await isUsable()))
      await sleep(AGAIN_MS, undefined, { signal, ref: false }).catch(() => {});
    await passOn(backend, changes, { signal, onError });
  }

  const roomOf = (project: string) =>
    room({ client, namespace: projectNamespace(namespace, project), project });

  /** All that there are, those of earlier servers included. */
  async function allRooms({ signal }: CallOptions = {}): Promise<Room[]> {
    const call = { action: 'list the namespaces of projects', query: { labelSelector }, signal };
    const { items } = (await client.json('GET', '/api/v1/namespaces', call)) as List<KubernetesObject>;
    for (const { metadata } of items) {
      const project = metadata.labels?.[LABELS.project] ?? '';
      // A label on a namespace of another name says nothing.
      if (metadata.name === projectNamespace(namespace, project)) roomOf(project);
    }
    return [...rooms.values()];
  }

  /** Where it is, or where nobody is, which then says that it does not exist. */
  async function at(id: SandboxId, options?: CallOptions): Promise<Room> {
    requireSandboxId(id);
    const known = where.get(id);
    if (known) return known;
    const asked = (await allRooms(options)).map(async (each) => ({
      each,
      seen: await each.observe(id, options),
    }));
    const found = (await Promise.all(asked)).find(({ seen }) => seen.phase !== 'absent');
    if (!found) return common;
    where.set(id, found.each);
    return found.each;
  }

  return {
    ...(canFreeze(common) && {
      freeze: async (id: SandboxId, options?: CallOptions) => (await at(id, options)).freeze!(id, options),
      thaw: async (id: SandboxId, options?: CallOptions) => (await at(id, options)).thaw!(id, options),
    }),
    ...(canSuspend(common) && {
      suspend: async (id: SandboxId, options?: StopOptions) => (await at(id, options)).suspend!(id, options),
    }),
    name: common.name,
    capabilities: (options) => common.capabilities(options),
    validate: (spec, options) => common.validate(spec, options),

    async ensure(id, spec, options = {}) {
      requireSandboxId(id);
      const home =
        where.get(id) ?? (options.project === undefined ? await at(id, options) : roomOf(options.project));
      const made = await home.ensure(id, spec, options);
      where.set(id, home);
      return made;
    },

    observe: async (id, options) => (await at(id, options)).observe(id, options),

    async list(options) {
      const lists = (await allRooms(options)).map(async (each) => {
        const found = await each.list(options);
        for (const { id } of found) where.set(id, each);
        return found;
      });
      return (await Promise.all(lists)).flat();
    },

    watch: (options) => changes.subscribe(options),
    connect: async (id, options) => (await at(id, options)).connect(id, options),
    stats: async (id, options) => (await at(id, options)).stats(id, options),
    stop: async (id, options) => (await at(id, options)).stop(id, options),

    async remove(id, options) {
      await (await at(id, options)).remove(id, options);
      where.delete(id);
    },

    sweep: async (options) =>
      (await Promise.all((await allRooms(options)).map((each) => each.sweep(options)))).flat(),

    async close() {
      closing.abort();
      changes.close();
      for (const each of rooms.values()) await each.close();
    },
  };
}
