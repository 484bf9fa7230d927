/** A verb of the command line: adds itself, with its options and what it does, to the program. */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Command } from 'commander';
import type { Backend, Orphan } from '../backends/backend.ts';
import type { UnwrittenFile } from '../backends/local/unwritten-files.ts';
import type { ClusterSettings } from '../backends/kubernetes/cluster-settings.ts';
import type { PlatformRule } from '../backends/composite/platform-rules.ts';
import type { BucketOpening } from '../bucket-mounts/bucket-mounts.ts';
import type { Egress } from '../egress/egress.ts';
import type { SealedBox } from '../lib/sealed-box.ts';
import type { Policy } from '../policy/policy.ts';
import type { Resolved } from '../settings/resolve-settings.ts';

/** Which Docker engine, and the image that the template `base` is there. */
export interface DockerSettings {
  host?: string;
  image?: string;
}

/** Where images come from, and how much of them is kept, on a backend that keeps images itself. */
export interface ImageFlags {
  private: readonly string[];
  insecure: readonly string[];
  mirrors: Readonly<Record<string, readonly string[]>>;
  /** In the form of Docker's `config.json`. */
  credentialsFile?: string;
  maxStoreBytes?: number;
  maxImageBytes?: number;
}

export interface BackendOptions {
  /** Where the backend may keep things. */
  dir: string;
  /** Seals what is secret in the backend's own records, where it keeps them itself. */
  box?: SealedBox;
  /** Carries connections out of sandboxes. Without it they reach nothing. */
  egress?: Egress;
  /** Who opens buckets that sandboxes mount. Without it they mount none. */
  buckets?: BucketOpening;
  runtime?: string;
  /** What may be asked for. */
  policy?: Policy;
  poolSize?: number;
  storage?: string;
  /** The program of gVisor. */
  runsc?: string;
  docker?: DockerSettings;
  /** Default: what the environment says. */
  cluster?: ClusterSettings;
  /** Where the server listens, which no sandbox on a cluster has any business with. */
  serverPort?: number;
  images?: ImageFlags;
  /** Which labels choose which of several backends. */
  platformRules?: readonly PlatformRule[];
  /** Tries in the background what each runtime can do. Absent: capabilities are what is wired. */
  probe?: { delayMs?: number };
  /** The process is the server, and to be kept from starving. */
  protectServer?: boolean;
  /** What a setting is called where the operator gave it. Default: its flag. */
  nameOf?: Resolved['nameOf'];
  onError?(error: unknown): void;
  /** Called with the orphans that a sweep removed while serving. */
  onSwept?(orphans: Orphan[]): void;
}

/** A backend whose every trace on this machine can be removed. */
export type OpenedBackend = Backend & { destroy(): Promise<void> };

/** An object of a cluster. */
export interface ClusterObject {
  kind: string;
  [field: string]: unknown;
}

/** What a backend makes in a cluster. */
export interface ClusterDeclarations {
  ownedKinds: readonly string[];
  render(options: {
    account: { name: string; namespace: string };
    project?: string;
    sandbox?: { id: SandboxId; spec: object };
  }): Promise<ClusterObject[]>;
}

/** What the entry point puts together and verbs only use. */
export interface Composition {
  /**
   * One backend by its name; several, with commas between their names, as platforms of which the first is the
   * default.
   */
  openBackend(names: string, options: BackendOptions): Promise<OpenedBackend>;
  /** Makes a single backend a platform, where records have others. */
  asPlatform(backend: Backend): Promise<Backend>;
  /** What opening them would sweep, without doing so. No server may have them. */
  surveyBackend(names: string, options: BackendOptions): Promise<Orphan[]>;
  /** What sandboxes of the local backend have written in mounts of buckets, and the buckets lack. */
  unwrittenFiles(dir: string): Promise<UnwrittenFile[]>;
  /**
   * Those backends that use a cluster, and what they make in it. `withSandbox`: that of a sandbox is
   * asked for too.
   */
  clusterBackends: readonly string[];
  declarationsOf(name: string, options: { dir: string; withSandbox: boolean }): Promise<ClusterDeclarations>;
  toYaml(objects: readonly object[]): Promise<string>;
  /** The entry point's own path: starting the server in the background runs it again. */
  entry: string;
}

export type Verb = (program: Command, composition: Composition) => void;
