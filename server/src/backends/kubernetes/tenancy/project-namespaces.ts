/**
 * A namespace for each project, beside that of the installation: the members of a composite that is routed by
 * project.
 *
 * Each namespace has a backend, opened when its project makes its first sandbox or when all sandboxes are
 * looked for. Nothing is stored: a label on the namespace says which project it is for. The installation's
 * own namespace has no sandboxes; the server checks its rights there when it starts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Broadcast } from '../../../lib/broadcast.ts';
import { inBackground } from '../../../lib/in-background.ts';
import type { Backend, CallScope, Observation } from '../../backend.ts';
import type { Members } from '../../composite/members.ts';
import { forwardObservations } from '../../support/forward-observations.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { LABELS, projectNamespace } from '../client/names.ts';
import type { KubernetesObject, List } from '../client/objects.ts';
import type { NamespaceScope } from '../namespace-scope.ts';

export interface ProjectNamespacesOptions {
  client: KubernetesClient;
  /** The installation's namespace; the names of the projects' namespaces begin with it. */
  namespace: string;
  installation: string;
  open(scope: NamespaceScope): Backend;
  onError(error: unknown): void;
}

const AGAIN_MS = 5_000;

export function projectNamespaces({
  client,
  namespace,
  installation,
  open,
  onError,
}: ProjectNamespacesOptions): Members {
  const backends = new Map<string, Backend>();
  const changes = new Broadcast<Observation>();
  const closing = new AbortController();
  const labelSelector = `${LABELS.installation}=${installation},${LABELS.project}`;
  opened({ client, namespace, withoutSandboxes: true });

  function opened(scope: NamespaceScope): string {
    if (!backends.has(scope.namespace)) {
      const backend = open(scope);
      backends.set(scope.namespace, backend);
      inBackground(follow(backend), onError);
    }
    return scope.namespace;
  }

  /** A namespace can be watched once it exists and the server has rights in it. */
  async function follow(backend: Backend): Promise<void> {
    const { signal } = closing;
    const isUsable = () =>
      backend.capabilities().then(
        () => true,
        () => false, // the next verb there reports why
      );
    while (!signal.aborted && !(await isUsable()))
      await sleep(AGAIN_MS, undefined, { signal, ref: false }).catch(() => {});
    await forwardObservations(backend, changes, { signal, onError });
  }

  const openedFor = (project: string) =>
    opened({ client, namespace: projectNamespace(namespace, project), project });

  /** Opens the namespaces of earlier servers too. */
  async function discover({ signal }: CallScope = {}): Promise<void> {
    const call = { action: 'list the namespaces of projects', query: { labelSelector }, signal };
    const { items } = (await client.json('GET', '/api/v1/namespaces', call)) as List<KubernetesObject>;
    for (const { metadata } of items) {
      const project = metadata.labels?.[LABELS.project] ?? '';
      // A label on a namespace of another name proves nothing.
      if (metadata.name === projectNamespace(namespace, project)) openedFor(project);
    }
  }

  return {
    noun: 'namespace',
    fallback: namespace,
    changes,
    target: (_spec, { project }) => (project === undefined ? undefined : openedFor(project)),
    home: ({ project }) => (project === undefined ? undefined : openedFor(project)),
    has: (name) => backends.has(name),
    get: async (name) => backends.get(name)!,
    // All namespaces have one kind of backend, so one of them has the abilities of all.
    opened: () => ({ backends: [backends.get(namespace)!], complete: true }),
    label: (spec) => spec,

    async each(ask, scope) {
      await discover(scope);
      return Promise.all(
        [...backends].map(async ([name, backend]) => ({ name, answer: await ask(backend, name) })),
      );
    },

    async close() {
      closing.abort();
      changes.close();
      for (const backend of backends.values()) await backend.close();
    },
  };
}
