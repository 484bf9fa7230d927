/** The contract of all backends. Read `Backend` first; `abilities/` has what not every backend can do. */
import {
  isCayError,
  type Capabilities,
  type CayError,
  type SandboxId,
  type SandboxSpec,
  type Stats,
} from '@cay/sdk/protocol';
import type { Guest } from '../guest/guest.ts';
import type { AbilityName, BackendAbilities } from './abilities/ability.ts';

/** On whose behalf a verb runs, and how long its result is wanted. The same for every verb. */
export interface CallScope {
  /**
   * The project of the sandbox, always the same for one id. A backend may keep projects apart by it and must
   * not need it, except where it creates something.
   */
  project?: string;
  /** The caller's own name for the sandbox, which becomes its hostname. Without one its id does. */
  name?: string;
  /** Once aborted the verb rejects `cancelled` at its next step and undoes what it had begun. */
  signal?: AbortSignal;
}

/** The state of a sandbox. */
export type Phase =
  /** The backend knows nothing of it. */
  | 'absent'
  /** It is being made; the guest has not answered yet. */
  | 'starting'
  /** The guest has answered. */
  | 'ready'
  /** It was stopped; its files are kept. */
  | 'stopped'
  /** Its memory is on disk; `ensure` restores its processes. */
  | 'hibernated'
  /** It ended by itself, or could not be made. `reason` says why. */
  | 'failed';

export type FailureReason =
  | 'oom_killed'
  | 'crashed'
  | 'start_failed'
  | 'host_restarted'
  | 'removed_outside'
  /** It wrote more than its limit, on a platform that ends sandboxes for that and cannot refuse the write. */
  | 'disk_full';

export interface Observation {
  id: SandboxId;
  phase: Phase;
  /** 0 while absent, then 1 and up. */
  incarnation: number;
  /**
   * The platform's own identifier of this incarnation: Kubernetes object uid, Docker container id. Unique
   * also among sandboxes that were removed. Present while the sandbox is ready.
   */
  uid?: string;
  /** The runtime that isolates it; absent while it does not run. */
  runtime?: string;
  /** It is ready, and its processes are not scheduled. */
  frozen?: boolean;
  /** It is stopped because it was suspended. */
  suspended?: boolean;
  /** Set when the phase is `failed`. */
  reason?: FailureReason;
  message?: string;
  /** Bytes of its memory image while it is hibernated, if known. */
  imageBytes?: number;
  /** Where a cluster runs it, while it does. */
  pod?: PodPlace;
}

/** The pod of a sandbox, for those who look at the cluster. */
export interface PodPlace {
  namespace: string;
  name: string;
  /** Absent until a node was chosen. */
  node?: string;
}

export interface StopOptions extends CallScope {
  /** How long processes have between SIGTERM and SIGKILL. Default 10,000. */
  graceMs?: number;
}

export interface StatsScope extends CallScope {
  /** Leaves out what takes more than a moment to find out: it is null. For readings every few seconds. */
  cheap?: boolean;
}

/**
 * A Backend makes sandboxes somewhere: on this machine, in Docker, on a cluster, in this process.
 *
 * **Terms.** The *control plane* decides that a sandbox exists: it owns ids, records, expiry, quotas and
 * permissions. A *backend* owns the resources that make it real (containers, cgroups, disks, pods) and
 * nothing else. It stores what it needs to find them again beside them, never in the control plane's
 * records. A *platform* is the place behind one backend. An *incarnation* is one start of a sandbox: a
 * sandbox that was stopped and ensured again keeps its id and its files, and has new processes, a new guest
 * connection and new counters. Its incarnation number only grows. A *guest* is our program inside, which
 * answers for it.
 *
 * **Who calls it, and how often.** The control plane alone. `validate` runs once or twice per create.
 * `observe` runs before most changes, `list` and `sweep` every minute, `capacity` every few seconds,
 * `connect` and `stats` on every call of a client: a driver keeps the guest's connection open and answers
 * these from memory. `capabilities` is asked at the start and by clients; it may be slow the first time.
 *
 * **Idempotency and crashes.** The control plane repeats its last step after a crash, so every verb is
 * idempotent: `ensure` of a ready sandbox and `remove` of an absent one succeed. A driver survives SIGKILL
 * between any two of its steps: it finds everything again, or sweeps it.
 *
 * **Concurrency.** The control plane never runs two verbs that change one id at the same time. Different ids
 * run side by side, and `observe`, `connect`, `stats`, `list` and `watch` at any time.
 *
 * **Errors.** `CayError` only. `unavailable` and `deadline_exceeded` mean that the platform does not answer
 * and say nothing about the sandbox (`isAway`); every other code is a fact. Messages name the sandbox by its
 * id, never by the driver's own names.
 *
 * **Time.** A verb that needs the guest bounds its wait: a program in a sandbox can take the guest's place
 * and never answer. `stop` forces the end after `graceMs` and a few seconds. `remove` must not need the
 * guest at all. `close` waits for what it has begun and leaves running what survives a restart.
 *
 * **Cost.** `ensure` is what a user waits for: tens of milliseconds where there is a warm pool, else what the
 * platform takes. `connect`, `stats` and `ability` are on hot paths and cost no call of the platform. A
 * `list` may cost one call of it for each page of sandboxes.
 *
 * **Limits of what it can do.** `validate` rejects `unsupported` before anything is made. Abilities that not
 * every backend has are the interfaces in `abilities/`, asked for by `ability(name)`.
 *
 * ```ts
 * const spec = SandboxSpecSchema.parse({ template: 'base' });
 * await backend.validate(spec);
 * await backend.ensure(id, spec, { project });           // ready: the guest has answered
 * const guest = await backend.connect(id);
 * const command = await guest.exec({ id: 'a', argv: ['true'], env: {}, workdir: '/', user: 'user' });
 * await command.ended;
 * const freezing = backend.ability('freeze');            // undefined where it cannot freeze
 * await freezing?.freeze(id);
 * await backend.remove(id);                              // from any phase
 * ```
 *
 * The conformance suite in `test/conformance/backend-suite.ts` checks all of this;
 * `docs/guide/writing-a-backend.md` writes a small driver from nothing.
 */
export interface Backend {
  /** The kind of driver: `local`, `docker`, `kubernetes-job`. Shown to clients. */
  readonly name: string;

  /**
   * The report for clients: runtimes, templates, and what works here. What is wired is true until a probe
   * says otherwise; `probes` says what was seen to work, by runtime.
   */
  capabilities(scope?: CallScope): Promise<Capabilities>;

  /**
   * The verbs of one ability, or undefined where this backend has none by now. Cheap, and never rejects. A
   * sandbox whose own runtime or platform lacks it still rejects `unsupported`.
   */
  ability<A extends AbilityName>(name: A): BackendAbilities[A] | undefined;

  /**
   * Checks a spec before anything is made. Rejects `invalid_argument`, `not_found` (template or runtime),
   * `permission_denied` (the operator's policy) or `unsupported`.
   */
  validate(spec: SandboxSpec, scope?: CallScope): Promise<void>;

  /**
   * Starts the sandbox, and resolves when its guest has answered.
   *
   * An absent, stopped or failed sandbox is started, with the files it had. A hibernated sandbox is restored,
   * a frozen one thawed, a ready one left alone. Rejects `already_exists` if the sandbox was made from a
   * different spec. Limits do not count for that: `resize` changes them, and a sandbox that is started again
   * gets those of the spec, except its disk, where the platform can change them. When it rejects, what it had
   * begun is undone: a sandbox that was absent is absent again.
   */
  ensure(id: SandboxId, spec: SandboxSpec, scope?: CallScope): Promise<Observation>;

  /** The state of one sandbox; `absent` is an answer. Never rejects because of the sandbox's state. */
  observe(id: SandboxId, scope?: CallScope): Promise<Observation>;

  /** All sandboxes that this backend has, in no order. */
  list(scope?: CallScope): Promise<Observation[]>;

  /**
   * Every change of a sandbox's phase from now on, also changes that the backend did not cause. A reader that
   * falls 10,000 observations behind is ended: it then lists, and watches again.
   */
  watch(scope?: CallScope): AsyncIterable<Observation>;

  /** The running sandbox's guest. Rejects `not_found`, or `failed_precondition` unless ready. */
  connect(id: SandboxId, scope?: CallScope): Promise<Guest>;

  /** What it uses now; a value that the platform does not know is null. Rejects as `connect` does. */
  stats(id: SandboxId, scope?: StatsScope): Promise<Stats>;

  /** Ends every process, first by SIGTERM and then by SIGKILL; keeps the files. Rejects `not_found`. */
  stop(id: SandboxId, options?: StopOptions): Promise<Observation>;

  /** Ends the sandbox and removes everything that it had, without its guest. An absent sandbox is done. */
  remove(id: SandboxId, scope?: CallScope): Promise<void>;

  /** Disconnects from every sandbox, and ends only those that do not survive a restart. */
  close(): Promise<void>;
}

/** Whether the platform did not answer, which says nothing about the sandbox that was asked about. */
export function isAway(error: unknown): error is CayError {
  return isCayError(error, 'unavailable') || isCayError(error, 'deadline_exceeded');
}

export { abilityOf, type AbilityName, type BackendAbilities } from './abilities/ability.ts';
export type { Freezing } from './abilities/freezing.ts';
export type { Hibernating } from './abilities/hibernating.ts';
export type { ImageKeeping, ImagePullScope, ResolvedImage } from './abilities/images.ts';
export type { Capacity, Measuring, PlatformCapacity } from './abilities/measuring.ts';
export type { Platforms } from './abilities/platforms.ts';
export type { Resizing } from './abilities/resizing.ts';
export type {
  ArchiveSeal,
  CloneOptions,
  ImportOptions,
  SnapshotFacts,
  SnapshotFiles,
  Snapshotting,
} from './abilities/snapshotting.ts';
export type { Suspending } from './abilities/suspending.ts';
export type { Sizing } from './abilities/sizing.ts';
export type { Orphan, Sweeping } from './abilities/sweeping.ts';
export type { VolumeFacts, VolumeKeeping, VolumeWish } from './abilities/volumes.ts';
