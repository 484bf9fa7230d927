import { createHash } from 'node:crypto';
import { isCayError, type Sandbox, type Snapshot, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { nextSlice } from '../../../lib/slices.ts';
import type { BuildLog } from './build-log.ts';
import type { BuildSandboxes, Entered } from './build-sandboxes.ts';
import type { StepCache } from './step-cache.ts';
import type { Caching, Origin, StageResult, Step } from './step.ts';

/** How many cached steps are removed at once where the quota of snapshots is used up. */
const ROOM = 4;

export interface StageRun<State> {
  /** Whom the work on the event loop is counted for. */
  project: string;
  /** For the log: `[2/7]`, or with the name of the stage. */
  label(index: number): string;
  origin: Origin;
  /** What the origin is known by. */
  key: string;
  steps: readonly Step<State>[];
  /** The state before the first step. Asked for when a step needs it; may need the sandbox. */
  initial(enter: () => Promise<Entered>): Promise<State>;
  caching: Caching;
  cache: StepCache;
  sandboxes: BuildSandboxes;
  log: BuildLog;
  signal: AbortSignal;
  at(index: number): void;
}

/** Runs the steps of a stage that are not cached. Its sandbox is gone when it resolves. */
export async function runStage<State>(run: StageRun<State>): Promise<StageResult<State>> {
  const { steps, caching, cache, sandboxes, log, signal } = run;
  let { origin, key } = run;
  let state: State | undefined;
  let sandbox: Sandbox | undefined;
  /** Whether the sandbox has something that no snapshot has. */
  let isAhead = false;

  async function enter(): Promise<Entered> {
    sandbox ??= await sandboxes.make(origin);
    return sandboxes.enter(sandbox);
  }
  async function guest(): Promise<Entered['guest']> {
    const { guest: inside } = await enter();
    isAhead = true;
    return inside;
  }
  async function known(): Promise<State> {
    state ??= await run.initial(enter);
    return state;
  }
  async function leave(): Promise<void> {
    if (sandbox) await sandboxes.remove(sandbox);
    sandbox = undefined;
    isAhead = false;
  }
  /** Where the quota has no room for it, steps that were not used for long make room. */
  async function snapshotWithRoom(of: Sandbox): Promise<Snapshot> {
    for (;;) {
      try {
        return await sandboxes.snapshot(of, caching !== 'none');
      } catch (error) {
        if (!isCayError(error, 'resource_exhausted') || (await cache.trim(ROOM)) === 0) throw error;
      }
    }
  }
  async function take(): Promise<SnapshotId> {
    const snapshot = await snapshotWithRoom(sandbox!);
    origin = { snapshot: snapshot.id };
    isAhead = false;
    await faultPoint('builds.step.taken');
    return snapshot.id;
  }

  for (const [index, step] of steps.entries()) {
    // Steps that are cached, or change no file, wait for nothing else.
    await nextSlice(run.project);
    signal.throwIfAborted();
    run.at(index);
    key = hashOf([key, step.shown, await step.key(known)]);
    if (step.touches && caching === 'use') {
      const found = await cache.find<State>(key);
      if (found) {
        log.step(`${run.label(index)} ${step.shown}`);
        log.step(`${run.label(index)} CACHED`);
        await leave();
        ({ state } = found);
        origin = { snapshot: found.snapshot };
        continue;
      }
    }
    log.step(`${run.label(index)} ${step.shown}`);
    const began = performance.now();
    state = await step.run(await known(), { guest, log, signal });
    if (isAhead && caching !== 'none') {
      await cache.keep(key, await take(), state);
      await faultPoint('builds.step.kept');
    }
    if (step.touches)
      log.add('debug', `${run.label(index)} done in ${Math.round(performance.now() - began)} ms`);
  }
  const last = await known();
  if (isAhead) await take();
  await leave();
  return { origin, key, state: last };
}

export function hashOf(parts: unknown): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
