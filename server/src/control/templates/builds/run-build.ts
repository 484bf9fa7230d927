/** Runs a build, from the base template to the snapshot. */
import { CayError, CreateSandboxSchema, isCayError, type Sandbox, type SnapshotId } from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../../backends/support/start-main.ts';
import type { Control } from '../../control.ts';
import type { Principal } from '../../tenants/principal.ts';
import { awaitReady } from './await-ready.ts';
import type { BuildFiles } from './build-files.ts';
import type { BuildLog } from './build-log.ts';
import type { Build, Recipe } from './build.ts';
import { loginShell, type RunIn, type Surroundings } from './run-in.ts';
import { runStep } from './run-step.ts';

/** What a build asks of the control plane. */
export type BuildControl = Pick<
  Control,
  | 'create'
  | 'remove'
  | 'enter'
  | 'snapshot'
  | 'getSnapshot'
  | 'removeSnapshot'
  | 'templates'
  | 'saveTemplate'
  | 'policy'
>;

export interface BuildRun {
  control: BuildControl;
  files: Pick<BuildFiles, 'read'>;
  principal: Principal;
  build: Build;
  recipe: Recipe;
  log: BuildLog;
  signal: AbortSignal;
  timeoutMs: number;
  /** Reports the step that it is at: see `BuildFailure`. */
  at(step: number): void;
}

/** The name of a build's sandbox, known before it is made, so that a leftover can be found and removed. */
export const sandboxesOf = ({ id }: Pick<Build, 'id'>) => {
  const name = `build-${id}`;
  return [name, `${name}-start`] as const;
};

export const OF_BUILD = 'cay/build';
const READY_TIMEOUT_MS = 5 * 60_000;

export async function runBuild(run: BuildRun): Promise<SnapshotId> {
  const { control, principal, build, recipe, log, at } = run;
  const [first, second] = sandboxesOf(build);
  const labels = { [OF_BUILD]: build.id };
  let passing: SnapshotId | undefined;
  try {
    at(0);
    log.add('info', `FROM ${recipe.from}`);
    const { start } = recipe;
    const sandbox = await create(run, {
      name: first,
      template: recipe.from,
      memory: false,
      // The start command of the base template would interfere, and a spec cannot ask for no command.
      cmd: start === undefined ? undefined : ['/bin/true'],
    });
    const { surroundings, changed } = await steps(run, sandbox);
    at(recipe.steps.length + 1);
    const files = await control.snapshot(principal, sandbox.id, { labels });
    passing = files.id;
    await control.remove(principal, sandbox.id);
    if (!changed && start === undefined) {
      passing = undefined;
      return files.id;
    }
    const final = await create(run, {
      name: second,
      snapshot: files.id,
      ...surroundings,
      cmd: start === undefined ? undefined : loginShell(start),
    });
    if (start !== undefined) log.add('info', `START ${start}`);
    await ready(run, final, surroundings);
    return await keep(run, final, start !== undefined, labels);
  } finally {
    for (const name of sandboxesOf(build)) await control.remove(principal, name);
    if (passing) await control.removeSnapshot(principal, passing);
  }
}

async function create(
  { control, principal, build, signal, timeoutMs }: BuildRun,
  input: Record<string, unknown>,
): Promise<Sandbox> {
  signal.throwIfAborted();
  const request = CreateSandboxSchema.parse({
    ...input,
    limits: build.limits,
    labels: { [OF_BUILD]: build.id },
    // Longer than the build: it removes the sandbox if the server does not come back.
    timeoutMs: Math.min(timeoutMs + 60_000, control.policy.maxima.timeoutMs ?? Number.POSITIVE_INFINITY),
    onTimeout: 'destroy',
  });
  return (await control.create(principal, request, { exactly: 'user' in input })).sandbox;
}

async function steps(
  run: BuildRun,
  sandbox: Sandbox,
): Promise<{ surroundings: Surroundings; changed: boolean }> {
  const { control, principal, recipe, log, signal, at, files } = run;
  const { guest, row } = await control.enter(principal, sandbox.id);
  const { env, workdir, user } = row.spec;
  let surroundings: Surroundings = { env, workdir, user };
  const before = surroundings;
  for (const [index, step] of recipe.steps.entries()) {
    at(index + 1);
    const began = performance.now();
    log.add('info', `[${index + 1}/${recipe.steps.length}] ${step.type.toUpperCase()} ${shown(step)}`);
    const inside: RunIn = { guest, signal, surroundings, log };
    surroundings = await runStep(inside, step, files, principal.project);
    log.add(
      'debug',
      `[${index + 1}/${recipe.steps.length}] done in ${Math.round(performance.now() - began)} ms`,
    );
  }
  return { surroundings, changed: surroundings !== before };
}

function shown(step: Recipe['steps'][number]): string {
  switch (step.type) {
    case 'run':
      return step.command;
    case 'copy':
      return `${step.source} ${step.target}`;
    case 'env':
      // Values may be secrets.
      return step.variables.map(([name]) => name).join(' ');
    case 'write':
    case 'workdir':
      return step.path;
    case 'user':
      return step.user;
  }
}

async function ready(
  { control, principal, recipe, log, signal }: BuildRun,
  sandbox: Sandbox,
  surroundings: Surroundings,
): Promise<void> {
  if (recipe.ready === undefined) return;
  log.add('info', `READY ${recipe.ready}`);
  const { guest } = await control.enter(principal, sandbox.id);
  const output = recipe.start === undefined ? undefined : follow(guest, log, signal);
  try {
    await awaitReady({ guest, signal, surroundings }, recipe.ready, READY_TIMEOUT_MS);
  } finally {
    await output?.stop();
  }
}

/** Adds the output of the start command to the log while it is waited for. */
function follow(guest: RunIn['guest'], log: BuildLog, signal: AbortSignal): { stop(): Promise<void> } {
  const enough = new AbortController();
  const logged = (async () => {
    const handle = await guest.attach(MAIN_COMMAND_ID, { signal: AbortSignal.any([signal, enough.signal]) });
    const lines = log.lines('info', '[start]: ');
    for await (const chunk of handle.output) if (chunk.channel !== 'gap') lines.write(chunk.data);
    lines.end();
  })().catch(() => {
    // The log is informational.
  });
  return {
    stop() {
      enough.abort();
      return logged;
    },
  };
}

/** With the processes of the start command, where memory can be kept. */
async function keep(
  { control, principal, log }: BuildRun,
  { id }: Sandbox,
  started: boolean,
  labels: Record<string, string>,
): Promise<SnapshotId> {
  if (started) {
    try {
      return (await control.snapshot(principal, id, { labels, memory: true })).id;
    } catch (error) {
      if (!isCayError(error, 'unsupported')) throw error;
      log.add(
        'info',
        'The runtime keeps no memory: the start command will be started again in every sandbox',
      );
    }
  }
  return (await control.snapshot(principal, id, { labels })).id;
}

/** Adds to the error of a missing template what can be used instead. */
export function explained(error: unknown, { from }: Recipe): unknown {
  const isAway = isCayError(error, 'unavailable');
  if (!isAway && !isCayError(error, 'not_found') && !isCayError(error, 'unsupported')) return error;
  return new CayError(
    isAway ? 'unavailable' : 'not_found',
    `Cannot build from "${from.slice(0, 200)}": ${error.message}`,
    {
      hint: 'build from "base" or from a template of your own',
      cause: error,
    },
  );
}
