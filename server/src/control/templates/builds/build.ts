/**
 * A build makes a template: it starts a sandbox of an existing one, runs its steps in it, and takes a
 * snapshot. `step.ts` says what steps are, and how those that were run before are found again.
 *
 *     waiting ──▶ building ──▶ ready
 *        │           │
 *        └───────────┴───────▶ failed
 *
 * A build is requested first, so that files for it can be uploaded, and then started. With a start command,
 * sandboxes of the template have that command running: in the memory of the snapshot where the runtime keeps
 * it, else started with the sandbox.
 *
 * **Terms.** A *recipe* has steps, a *Dockerfile recipe* has the text to make steps of. The *context* is a
 * tar archive that was uploaded, known by its digest. A *superseded* snapshot made a template that has
 * another by now.
 *
 * **Who calls.** The REST API and the E2B API, a few calls for each build; `follow` for as long as a client
 * watches. The E2B API calls `settled` for each create from a template, and `of` for each template that it
 * lists.
 *
 * **Concurrency.** Two builds run at once, of all projects; others wait in the order of their starts. Builds
 * of one template may overlap: the one that ends last names the template.
 *
 * **Crashes.** A build of a server that was killed has failed when the next one opens; its sandboxes and
 * snapshots are found by their label, and steps that were recorded serve later builds.
 *
 * **Errors.** `request` and `start` reject what can be known before: `invalid_argument` (limits, a Dockerfile
 * that cannot be read), `already_exists`, `resource_exhausted`, `failed_precondition`. What goes wrong in a
 * build is its `failure`, with the step, and never rejects `start`.
 *
 * **Cost.** A create and a snapshot for each step that is not cached; a cached step costs one read of the
 * records.
 *
 *     const build = await builds.request(principal, { template: 'mine', names: ['mine'] });
 *     await builds.start(principal, build.id, { from: 'base', steps: [{ type: 'run', command: 'make' }] });
 *     const log = builds.follow(principal, build.id, { offset: 0, signal });
 *     for await (const { message } of log) show(message);
 *     await builds.finished(principal, build.id);              // rejects with the failure
 *     await control.create(principal, { template: 'mine' });
 */
import type { BuildTemplate, Limits, NetworkPolicy, ReadinessCheck, Sandbox } from '@cay/sdk/protocol';
import type { BuildLogEntry, BuildRow } from '../../../records/tables/builds.ts';
import type { Principal } from '../../tenants/principal.ts';
import type { BuildFiles } from './build-files.ts';
import type { Caching } from './step.ts';

export type { BuildFailure, BuildLogEntry } from '../../../records/tables/builds.ts';
/** The names of the template include its tags. */
export type Build = BuildRow;

export type BuildStep =
  /** A command line for a login shell. */
  | { type: 'run'; command: string; user?: string }
  /** Uploaded files, by their digest. `source` is a path in them. */
  | { type: 'copy'; files: string; source: string; target: string; owner?: string; mode?: string }
  | { type: 'write'; path: string; content: Uint8Array; mode: number }
  /** `$NAME` in a value is replaced by the variable at that step. */
  | { type: 'env'; variables: readonly (readonly [name: string, value: string])[] }
  /** Created if it does not exist. A relative path starts at the previous one. */
  | { type: 'workdir'; path: string }
  | { type: 'user'; user: string };

export interface Recipe {
  /** A template of the project or of the backend. */
  from: string;
  steps: readonly BuildStep[];
  /** Command lines for a login shell. Default: those of the template it is made from. */
  start?: string;
  /** Exits with 0 when the start command is ready. */
  ready?: string;
  /** Default: no step is kept for later builds. */
  caching?: Caching;
}

/** A build from a Dockerfile. `dockerfile/` reads it, and makes the same steps of it. */
export interface DockerfileRecipe {
  dockerfile: string;
  /** The digest of uploaded files, for COPY and ADD. */
  context?: string;
  args: Readonly<Record<string, string>>;
  /** Never recorded. */
  secrets: Readonly<Record<string, string>>;
  target?: string;
  network?: NetworkPolicy;
  caching: Caching;
  /** A command line for the shell of the template. */
  start?: string;
  ready?: ReadinessCheck;
  timeoutMs?: number;
}

export interface RequestBuild {
  template: string;
  names: readonly string[];
  limits?: Partial<Limits>;
  digest?: string;
}

/** Every verb rejects `not_found` for a build of another project. */
export interface Builds {
  readonly files: BuildFiles;
  /**
   * Rejects `already_exists` for a name that the backend has, `resource_exhausted` if too many are under way.
   */
  request(principal: Principal, request: RequestBuild): Promise<Build>;
  /** Rejects `failed_precondition` unless it is waiting. */
  start(principal: Principal, id: string, recipe: Recipe | DockerfileRecipe): Promise<Build>;
  /**
   * Requests and starts a build from a Dockerfile. Rejects `invalid_argument` for one that cannot be read,
   * before anything is made.
   */
  buildDockerfile(principal: Principal, request: BuildTemplate): Promise<Build>;
  /** The newest first. */
  list(principal: Principal, limit: number): Promise<Build[]>;
  /** Ends a build that waits or is under way. One that has ended stays as it is. */
  cancel(principal: Principal, id: string): Promise<Build>;
  /** Entries of the log from `offset` on, as they come, until the build has ended. */
  follow(
    principal: Principal,
    id: string,
    options: { offset: number; signal: AbortSignal },
  ): AsyncIterable<BuildLogEntry>;
  get(principal: Principal, id: string): Promise<Build>;
  /** Resolves when it is ready. Rejects with the failure of the build. */
  finished(principal: Principal, id: string): Promise<Build>;
  log(principal: Principal, id: string, range: { offset: number; limit: number }): Promise<BuildLogEntry[]>;
  /** The build that made a snapshot. */
  of(principal: Principal, snapshot: string): Promise<Build | undefined>;
  /**
   * Resolves when the start command of a sandbox's template is ready in it; at once if it was running in the
   * snapshot.
   */
  settled(principal: Principal, sandbox: Sandbox): Promise<void>;
  close(): Promise<void>;
}
