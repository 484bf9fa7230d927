/**
 * A Build makes a template: it takes one that exists, does what its steps say in a sandbox, and keeps what
 * has become of it.
 *
 *     waiting ──▶ building ──▶ ready
 *        │           │
 *        └───────────┴───────▶ failed
 *
 * A build is requested first, so that files for it can be brought, and then started. With a start command,
 * sandboxes of the template have that command running: from the first moment where the isolation keeps
 * memory, started anew where it does not.
 */
import type { Limits, Sandbox, SnapshotId } from '@cay/sdk/protocol';
import type { Principal } from '../../tenants/principal.ts';
import type { BuildFiles } from './build-files.ts';

export type BuildState = 'waiting' | 'building' | 'ready' | 'failed';

export type BuildStep =
  /** A line for a login shell. */
  | { type: 'run'; command: string; user?: string }
  /** Files that were brought, under the digest they were brought by. `source` is where in them it begins. */
  | { type: 'copy'; files: string; source: string; target: string; owner?: string; mode?: string }
  | { type: 'write'; path: string; content: Uint8Array; mode: number }
  /** `$NAME` in a value stands for what the variable is at that moment. */
  | { type: 'env'; variables: readonly (readonly [name: string, value: string])[] }
  /** Made if it is not there. What is not absolute goes on from the one before. */
  | { type: 'workdir'; path: string }
  | { type: 'user'; user: string };

export interface Recipe {
  /** A template of the project or of the backend. */
  from: string;
  steps: readonly BuildStep[];
  /** Lines for a login shell. Absent, those of the template it is made from. */
  start?: string;
  /** Ends well when what was started is ready. */
  ready?: string;
}

export interface BuildFailure {
  message: string;
  /**
   * 0 is what it was made from, 1 the first step, and one more than there are steps what comes after the
   * last.
   */
  step: number;
  steps: number;
  /** What was run, if a command is to blame, and how it ended. */
  command?: string;
  exitCode?: number;
  /** The user it should have run as, if there is none. */
  unknownUser?: string;
}

export interface Build {
  /** A UUID. */
  id: string;
  project: string;
  template: string;
  /** What the template is called when it is ready, tags among it. */
  names: string[];
  limits: Partial<Limits>;
  /** Of those that the server makes by itself: what tells whether one is up to date. */
  digest: string | null;
  state: BuildState;
  start: string | null;
  ready: string | null;
  snapshot: SnapshotId | null;
  failure: BuildFailure | null;
  createdAtMs: number;
  endedAtMs: number | null;
}

export interface BuildLogEntry {
  atMs: number;
  level: 'debug' | 'info' | 'warn' | 'error';
  message: string;
}

export interface RequestBuild {
  template: string;
  names: readonly string[];
  limits?: Partial<Limits>;
  digest?: string;
}

/** Every verb rejects `not_found` for what is not the principal's own. */
export interface Builds {
  readonly files: BuildFiles;
  /**
   * Rejects `already_exists` for a name that the backend has, `resource_exhausted` while too many are under
   * way.
   */
  request(principal: Principal, request: RequestBuild): Promise<Build>;
  /** Rejects `failed_precondition` unless it waits. */
  start(principal: Principal, id: string, recipe: Recipe): Build;
  get(principal: Principal, id: string): Build;
  /** Resolves when it is ready; rejects with why it is not. */
  finished(principal: Principal, id: string): Promise<Build>;
  log(principal: Principal, id: string, range: { offset: number; limit: number }): BuildLogEntry[];
  /** What a snapshot was made by. */
  of(principal: Principal, snapshot: string): Build | undefined;
  /** Resolves when what a sandbox's template starts is ready in it. At once for what is running already. */
  settled(principal: Principal, sandbox: Sandbox): Promise<void>;
  close(): Promise<void>;
}
