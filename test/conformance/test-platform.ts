import type { SandboxId, SandboxSpecInput } from '@cay/sdk/protocol';
import type { Backend } from '../../server/src/backends/backend.ts';

/**
 * What a driver's test brings: a backend, and the hands to look behind it that the contract does not give.
 */
export interface TestPlatform {
  backend: Backend;
  /** Laid over the defaults of every spec: template, runtime, or limits that must be `null` here. */
  spec?: SandboxSpecInput;
  /**
   * A new Backend on the same platform. The suite has called `close()` on the old one, unless it is to find
   * it crashed.
   */
  restart?(): Promise<Backend>;
  /** Ends the sandbox's guest behind the backend's back, as a crash would. */
  crash?(id: SandboxId): Promise<void>;
  /**
   * Names what is left on the host: mounts, cgroups, processes, directories. `[]` once everything was
   * removed.
   */
  leftovers?(): Promise<string[]>;
  /** Paths of the host that no sandbox may see, such as the backend's data directory. */
  hostPaths?: string[];
  /** True if root inside is another user on the host, and `/proc/self/uid_map` inside tells so. */
  mapsUsers?: boolean;
  /**
   * Whose kernel a sandbox runs on: the host's, behind the filter, masks and limits of our own bundle, or one
   * of its own. Absent where an engine brings its own rules.
   */
  kernel?: 'shared' | 'own';
  /**
   * A program that echoes every connection on `127.0.0.1:port`, where neither python3 nor perl is at hand.
   */
  echoServer?(port: number): string[];
  cleanup(): Promise<void>;
}

export type PlatformFactory = () => Promise<TestPlatform>;

export interface SuiteOptions {
  /** How many sandboxes are made at once in the case about that. Default 50. */
  sandboxes?: number;
  /** Cases that this driver cannot pass yet, by title, with the reason that is printed. */
  skip?: Record<string, string>;
  /** Only these areas, for a driver that adds nothing of its own to the others. */
  areas?: readonly string[];
}
