/**
 * A Backend makes sandboxes somewhere: on this machine, in Docker, on a cluster, in this process.
 *
 * The control plane decides *that* a sandbox exists: it owns ids, records, expiry, quotas and who
 * may do what. A backend owns the objects that make one real (containers, cgroups, disks, pods)
 * and nothing else; it keeps what it must know to find them again beside them, never in the
 * control plane's records.
 *
 * Every verb is idempotent, because the control plane repeats its last step after a crash:
 * `ensure` of what exists and `remove` of what does not are both done, not errors. The control
 * plane never runs two verbs for one id at the same time; different ids run side by side.
 *
 * A sandbox that was stopped and ensured again keeps its id and its files, but is another
 * *incarnation*: its processes, its guest connection and its counters are new. An incarnation's
 * number only grows.
 *
 * What a backend cannot do its capabilities say, and `validate` refuses with `unsupported`
 * before anything is made. Abilities that not every backend has are the small interfaces at the
 * end of this file; `capabilities()` tells whether a backend has them.
 */
import type { Capabilities, Limits, SandboxId, SandboxSpec, Stats } from '@cay/sdk/protocol';
import type { Guest } from '../guest/guest.ts';

export interface CallOptions {
  signal?: AbortSignal;
}

/** Where a sandbox stands. */
export type Phase =
  /** The backend knows nothing of it. */
  | 'absent'
  /** It is being made; the guest has not answered yet. */
  | 'starting'
  /** The guest has answered. */
  | 'ready'
  /** It was stopped; its files are kept. */
  | 'stopped'
  /** It ended by itself, or could not be made. `reason` tells why. */
  | 'failed';

export type FailureReason = 'oom_killed' | 'crashed' | 'start_failed' | 'host_restarted' | 'removed_outside';

export interface Observation {
  id: SandboxId;
  phase: Phase;
  /** 0 while absent, then 1 and up. */
  incarnation: number;
  /** Which isolation it really has; absent while it has none. */
  runtime?: string;
  /** Set when the phase is `failed`. */
  reason?: FailureReason;
  message?: string;
}

export interface StopOptions extends CallOptions {
  /** How long processes have between SIGTERM and SIGKILL. Default 10,000. */
  graceMs?: number;
}

export interface Backend {
  readonly name: string;

  /** Wired and verified on this machine, never hoped. May be slow the first time. */
  capabilities(options?: CallOptions): Promise<Capabilities>;

  /**
   * Says what this backend cannot honour, before anything is made.
   * Rejects `invalid_argument`, `not_found` (template or runtime) or `unsupported`.
   */
  validate(spec: SandboxSpec, options?: CallOptions): Promise<void>;

  /**
   * Makes the sandbox run, and resolves when its guest has answered.
   *
   * Absent or stopped or failed: it is started, with the files it had. Ready: nothing happens.
   * Rejects `already_exists` if the sandbox was made from a different spec (limits apart: those
   * change by `resize`). When it rejects, whatever it had begun is undone: a sandbox that was
   * absent is absent again.
   */
  ensure(id: SandboxId, spec: SandboxSpec, options?: CallOptions): Promise<Observation>;

  /** A condition with a reason; absent is an answer. Never rejects because of the sandbox's state. */
  observe(id: SandboxId, options?: CallOptions): Promise<Observation>;

  /** All sandboxes that this backend has, in no order. */
  list(options?: CallOptions): Promise<Observation[]>;

  /** Every change of a sandbox's phase from now on, those the backend did not cause included. */
  watch(options?: CallOptions): AsyncIterable<Observation>;

  /** The running sandbox's guest. Rejects `not_found`, or `failed_precondition` unless ready. */
  connect(id: SandboxId, options?: CallOptions): Promise<Guest>;

  /** Rejects `not_found`, or `failed_precondition` unless ready. */
  stats(id: SandboxId, options?: CallOptions): Promise<Stats>;

  /** Ends every process, gracefully and then by force; keeps the files. Rejects `not_found`. */
  stop(id: SandboxId, options?: StopOptions): Promise<Observation>;

  /** Ends it and removes all that it had. Absent is done. */
  remove(id: SandboxId, options?: CallOptions): Promise<void>;

  /** Lets go of every sandbox and destroys none of those that survive a restart. */
  close(): Promise<void>;
}

/** Changes limits while the sandbox runs. A backend has it if it can `resize`. */
export interface Resizing {
  /** Applies the limits that are given, up or down. Rejects `failed_precondition` if more is in use than would be allowed. */
  resize(id: SandboxId, limits: Partial<Pick<Limits, 'cpus' | 'memoryBytes' | 'pids' | 'diskBytes'>>, options?: CallOptions): Promise<void>;
}

/** Stops the sandbox's processes from being scheduled at all, and lets them go on. */
export interface Freezing {
  freeze(id: SandboxId, options?: CallOptions): Promise<void>;
  thaw(id: SandboxId, options?: CallOptions): Promise<void>;
}

export function canResize(backend: Backend): backend is Backend & Resizing {
  return 'resize' in backend;
}

export function canFreeze(backend: Backend): backend is Backend & Freezing {
  return 'freeze' in backend;
}
