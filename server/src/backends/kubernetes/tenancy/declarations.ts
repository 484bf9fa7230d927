/** The objects that a backend on Kubernetes makes in a cluster, without making them. */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Declared } from '../client/apply.ts';
import { kubernetesClient, type KubernetesClient } from '../client/kubernetes-client.ts';
import type { Right } from '../prerequisites.ts';
import { projectNamespace } from '../client/names.ts';
import { rbacObjects } from './rbac.ts';
import { checkSettings, type KubernetesSettings } from '../settings.ts';
import { projectRights, TENANCY_KINDS, TENANCY_RIGHTS, tenancyObjects, type Account } from './tenancy.ts';

export interface RenderOptions {
  /** Whom the rights are given to. */
  account: Account;
  /** Print what the namespace of this project has, in place of that of the installation. */
  project?: string;
  /** Print the objects of this sandbox in place of the shared ones. `spec` is as the API takes it. */
  sandbox?: { id: SandboxId; spec: object };
}

export interface Declarations {
  /** The kinds that are made of one's own accord. */
  ownedKinds: readonly string[];
  render(options: RenderOptions): Promise<Declared[]>;
}

export interface Place {
  client: KubernetesClient;
  namespace: string;
  installation: string;
}

export interface DeclarationParts {
  kinds: readonly string[];
  rights: Right[];
  sandbox(place: Place, id: SandboxId, spec: object): Promise<Declared[]>;
  /** What all sandboxes of a namespace share. */
  shared?(place: Place): Promise<Declared[]>;
}

/** The objects that all sandboxes share, and those of one sandbox. */
export function declarations(
  settings: KubernetesSettings,
  { kinds, rights, sandbox, shared }: DeclarationParts,
): Declarations {
  const { installation } = checkSettings(settings);
  const { tenancy } = settings;
  return {
    ownedKinds: [
      ...(tenancy ? TENANCY_KINDS : []),
      ...(tenancy?.perProject ? ['RoleBinding'] : []),
      ...kinds,
    ],
    async render(options) {
      const client = await kubernetesClient(settings);
      try {
        const common = settings.namespace ?? client.namespace ?? 'default';
        const { account } = options;
        const project = tenancy?.perProject ? options.project : undefined;
        const namespace = project === undefined ? common : projectNamespace(common, project);
        if (options.sandbox)
          return await sandbox({ client, namespace, installation }, options.sandbox.id, options.sandbox.spec);
        const sharedObjects = async () => (await shared?.({ client, namespace, installation })) ?? [];
        if (tenancy && project !== undefined) {
          const objects = tenancyObjects({ namespace, installation, tenancy, project, account });
          return [...objects, ...(await sharedObjects())];
        }
        const perProject = tenancy?.perProject === true;
        return [
          ...(tenancy ? tenancyObjects({ namespace, installation, tenancy }) : []),
          ...rbacObjects({
            installation,
            namespace,
            rights: neededRights(rights, { tenancy, installation }),
            account,
            perProject,
          }),
          // The sandboxes of projects are in their own namespaces, and so is what they share.
          ...(perProject ? [] : await sharedObjects()),
        ];
      } finally {
        client.close();
      }
    },
  };
}

/** Of the backend, and of what is kept besides. */
export function neededRights(
  rights: Right[],
  { tenancy, installation = 'default' }: Pick<KubernetesSettings, 'tenancy' | 'installation'>,
): Right[] {
  return [
    ...rights,
    ...(tenancy ? TENANCY_RIGHTS : []),
    ...(tenancy?.perProject ? projectRights(installation) : []),
  ];
}
