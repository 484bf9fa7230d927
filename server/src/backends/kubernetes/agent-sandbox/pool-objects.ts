import type { SandboxSpec } from '@cay/sdk/protocol';
import type { Metadata } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import type { Runtime } from '../runtimes.ts';
import type { PodOptions } from '../workloads/pod-spec.ts';
import { poolDigest, usualPod } from '../workloads/usual-pod.ts';
import { installationLabels } from '../workloads/workload.ts';
import { blueprint, CORE_VERSION, moment } from './sandbox.ts';
import type { PoolAndStorage } from './settings.ts';

export const EXTENSIONS_VERSION = 'extensions.agents.x-k8s.io/v1beta1';

/** An object that the server applies. */
export interface PoolObject {
  apiVersion: string;
  kind: string;
  metadata: Partial<Metadata> & { name: string };
  spec: object;
}

export interface PoolObjects {
  /** Changes with the settings, so that a pool of other settings has another name. */
  name: string;
  /** Carries the lease; template and pool belong to it. */
  holder: PoolObject;
  template: PoolObject;
  pool: PoolObject;
  /** Whether a sandbox of this spec is what the pool has. */
  fits(spec: SandboxSpec, options: PodOptions): boolean;
}

const prefixOf = (installation: string) => `cay-${installation.slice(0, 30)}`;

/** The name of the Sandbox that carries the lease of the pool. */
export function holderOf(installation: string): string {
  return `${prefixOf(installation)}-warm`;
}

/** The objects of a warm pool for the default spec. */
export function poolObjects(
  {
    namespace,
    installation,
    settings,
    nowMs,
  }: Pick<Place, 'namespace' | 'installation' | 'settings'> & { nowMs: number },
  { warmPool: replicas = 0, storage }: PoolAndStorage,
  runtime: Runtime,
): PoolObjects {
  const labels = installationLabels(installation);
  // Where files are on a volume no sandbox has a disk limit of its own.
  const { spec, options, fits } = usualPod(settings, runtime, storage && { diskBytes: null });
  const made = blueprint(undefined, spec, labels, { ...options, storage });
  const name = `${prefixOf(installation)}-${poolDigest(made)}`;
  const metadata = { name, namespace, labels };
  return {
    name,
    holder: {
      apiVersion: CORE_VERSION,
      kind: 'Sandbox',
      metadata: { name: holderOf(installation), namespace, labels },
      spec: {
        podTemplate: { spec: { containers: [{ name: 'none', image: settings.guestImage }] } },
        service: false,
        operatingMode: 'Suspended',
        shutdownTime: moment(nowMs + settings.leaseSeconds * 1000),
        shutdownPolicy: 'Delete',
      },
    },
    template: {
      apiVersion: EXTENSIONS_VERSION,
      kind: 'SandboxTemplate',
      metadata,
      // The policies of the namespace say what may be reached, as for every other sandbox.
      spec: { ...made, networkPolicyManagement: 'Unmanaged' },
    },
    pool: {
      apiVersion: EXTENSIONS_VERSION,
      kind: 'SandboxWarmPool',
      metadata,
      spec: { replicas, sandboxTemplateRef: { name } },
    },
    fits,
  };
}
