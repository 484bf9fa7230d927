import { CayError } from '@cay/sdk/protocol';
import { requireImage } from '../../policy/allow-image.ts';
import type { Egress } from '../../egress/egress.ts';
import type { Policy } from '../../policy/policy.ts';
import type { ClientOptions } from './client/kubernetes-client.ts';
import type { TenancySettings } from './tenancy/tenancy.ts';
import type { VolumeSettings } from './volumes/volume-settings.ts';

/** The settings of every backend on Kubernetes. */
export interface KubernetesSettings extends ClientOptions {
  /** Where sandboxes are made. Default: the namespace of the context, or `default`. */
  namespace?: string;
  /** Tells the sandboxes of several servers that share a namespace apart. Default `default`. */
  installation?: string;
  /** The image that the guest comes in. */
  guestImage: string;
  /** The image of the template `base`. */
  baseImage: string;
  /** Further templates by name, each an image. */
  templates?: Record<string, string>;
  /** The RuntimeClass of a sandbox that asks for none. Default: the cluster's own way to run pods. */
  runtimeClass?: string;
  /** Which of these runtimes and images may be asked for. */
  policy?: Policy;
  pullPolicy?: 'Always' | 'IfNotPresent' | 'Never';
  pullSecrets?: string[];
  /**
   * How long objects stay after their server has stopped for good. Renewed while the server runs. Default an
   * hour.
   */
  leaseSeconds?: number;
  /** Requests of the pod: what the scheduler reserves for a sandbox, whatever its limits are. */
  requests?: { cpus: number; memoryBytes: number };
  /** The disk limit of a sandbox that asks for none. Default 10 GiB. */
  diskBytes?: number;
  /** What named volumes are. */
  volumes?: VolumeSettings;
  /**
   * How guests are reached: by an exec through API server and kubelet (default), or from inside the cluster
   * over the network of pods.
   */
  reach?: 'exec' | 'direct';
  /** The port on which guests listen for that. Default 7071. */
  directPort?: number;
  /** Whether it is tried from pods if the cluster enforces NetworkPolicies. Default not. */
  probeNetwork?: boolean;
  /** No sandbox is started while that is not so. */
  requireNetworkPolicy?: boolean;
  /** Where the server listens, which no sandbox has any business with. Default 7070. */
  serverPort?: number;
  /**
   * The server makes and reconciles the namespace, with these bounds. Absent: the operator does, and nothing
   * of it is touched.
   */
  tenancy?: TenancySettings;
  /** What programs inside reach the network through. Absent: what the NetworkPolicy lets pass. */
  egress?: Egress | undefined;
}

export const DIRECT_PORT = 7071;

/** The name of pods that have no RuntimeClass. */
export const DEFAULT_RUNTIME = 'default';

const INSTALLATION = /^[a-z0-9]+(-[a-z0-9]+)*$/;

export function checkSettings(
  settings: KubernetesSettings,
): Required<
  Pick<KubernetesSettings, 'installation' | 'leaseSeconds' | 'requests' | 'pullPolicy' | 'directPort'>
> {
  const {
    installation = 'default',
    leaseSeconds = 3600,
    requests = { cpus: 0.05, memoryBytes: 64 * 1024 * 1024 },
  } = settings;
  const { directPort = DIRECT_PORT } = settings;
  if (!INSTALLATION.test(installation) || installation.length > 63) {
    throw new CayError(
      'invalid_argument',
      `Installation "${installation}" must be lower-case letters, digits and single dashes`,
    );
  }
  if (!Number.isInteger(leaseSeconds) || leaseSeconds < 60) {
    throw new CayError('invalid_argument', `A lease of ${leaseSeconds} s cannot be: must be 60 s or more`);
  }
  // Ports below 1024 need root, and pods have no root.
  if (!Number.isInteger(directPort) || directPort < 1024 || directPort > 65_535) {
    throw new CayError(
      'invalid_argument',
      `Guests cannot listen on port ${directPort}: must be from 1024 to 65535`,
    );
  }
  return {
    installation,
    leaseSeconds,
    requests,
    directPort,
    pullPolicy: settings.pullPolicy ?? 'IfNotPresent',
  };
}

const TAGGED = /^[a-z0-9]+(?:[._/:-]+[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})$/;

/**
 * The image of a template: one that has a name in the settings, or an image that says which version is meant
 * and that the operator allows. Rejects `not_found` and `permission_denied`.
 */
export function imageOf(template: string, settings: KubernetesSettings): string {
  const named =
    template === 'base'
      ? settings.baseImage
      : Object.hasOwn(settings.templates ?? {}, template)
        ? settings.templates?.[template]
        : undefined;
  if (named !== undefined) return named;
  if (TAGGED.test(template)) {
    requireImage(settings.policy ?? {}, template);
    return template;
  }
  throw new CayError('not_found', `Template "${template.slice(0, 128)}" is unknown to Kubernetes`, {
    details: { what: 'template' },
    hint: `known templates: ${['base', ...Object.keys(settings.templates ?? {})].join(', ')}; or an image with a tag, such as "python:3.13-slim"`,
  });
}
