/**
 * What every build is made of, whichever way it was written: a Dockerfile, the recipe of an E2B client, or
 * one of the server's own.
 *
 * A *stage* begins with a template, an image or another stage, and takes *steps*. A step may change files, in
 * a sandbox of the build, and the *state*, which is what later steps and sandboxes of the template get:
 * environment, user, working directory. The state is JSON.
 *
 * A *key* stands for a stage up to a step: the hash of the key before it and of what the step depends on. A
 * step whose key is known is not run again: its snapshot and its state are taken.
 *
 * **Who calls.** `run-stage.ts`, once for each step of a build: `key` first, and `run` only if no snapshot
 * has it.
 *
 * **Concurrency.** The steps of a stage run one after the other; stages of one build may run in any order
 * that their sources allow.
 *
 * **Errors.** A step rejects with `details` that say which command failed and how it ended; the build records
 * them.
 *
 * **Cost.** A step that asks for `guest()` costs a sandbox for the stage once, and a snapshot of its own.
 *
 *     const workdir = (path: string): Step<State> => ({
 *       shown: `WORKDIR ${path}`,
 *       touches: true,
 *       key: async () => path,
 *       async run(state, inside) {
 *         await (await inside.guest()).files('root').mkdir(path);
 *         return { ...state, workdir: path };
 *       },
 *     });
 */
import type { SnapshotId } from '@cay/sdk/protocol';
import type { Guest } from '../../../guest/guest.ts';
import type { BuildLog } from './build-log.ts';

/** What a stage or a sandbox of a build begins with. */
export type Origin = { template: string } | { snapshot: SnapshotId };

/** The sandbox of a stage, for one step. */
export interface Inside {
  /** Makes the sandbox if there is none yet. A step that asks for it has changed files. */
  guest(): Promise<Guest>;
  log: BuildLog;
  signal: AbortSignal;
}

export interface Step<State> {
  /** A line for the log, without values that may be secret. */
  shown: string;
  /** Whether it may need the sandbox. What does not is cheap, and never cached. */
  touches: boolean;
  /** What the result depends on beside all steps before it. JSON. */
  key(state: () => Promise<State>): Promise<unknown>;
  run(state: State, inside: Inside): Promise<State>;
}

/** `refresh` runs every step and keeps its result; `none` keeps none. */
export type Caching = 'use' | 'refresh' | 'none';

export interface StageResult<State> {
  origin: Origin;
  key: string;
  state: State;
}
