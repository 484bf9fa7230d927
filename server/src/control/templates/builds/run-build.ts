/** Runs a build, from what it begins with to the snapshot. */
import { posix } from 'node:path';
import {
  CayError,
  isCayError,
  NO_TEMPLATE_CONFIG,
  SandboxSpecSchema,
  type SnapshotId,
  type TemplateConfig,
} from '@cay/sdk/protocol';
import { MAIN_COMMAND_ID } from '../../../backends/support/start-main.ts';
import type { Control } from '../../control.ts';
import { DEFAULT_SHELL } from '../dockerfile/stage-state.ts';
import { configOfImage, runDockerfile, thisArchitecture, type Base } from '../dockerfile/run-dockerfile.ts';
import type { Principal } from '../../tenants/principal.ts';
import { awaitReady, readyText } from './await-ready.ts';
import type { BuildFiles } from './build-files.ts';
import type { BuildLog } from './build-log.ts';
import { OF_BUILD, buildSandboxes, type BuildSandboxes } from './build-sandboxes.ts';
import type { Build, DockerfileRecipe, Recipe } from './build.ts';
import { makeDirectories } from './copy-files.ts';
import { recipeSteps } from './recipe-steps.ts';
import { loginShell, type RunIn, type Surroundings } from './run-in.ts';
import { hashOf, runStage } from './run-stage.ts';
import type { StepCache } from './step-cache.ts';
import type { Origin } from './step.ts';

/** What a build asks of the control plane. */
export type BuildControl = Pick<
  Control,
  | 'create'
  | 'remove'
  | 'list'
  | 'enter'
  | 'snapshot'
  | 'snapshots'
  | 'getSnapshot'
  | 'removeSnapshot'
  | 'templates'
  | 'saveTemplate'
  | 'policy'
> & { images: Pick<Control['images'], 'resolve'> };

export interface BuildRun {
  control: BuildControl;
  files: Pick<BuildFiles, 'read' | 'pathOf'>;
  cache: StepCache;
  principal: Principal;
  build: Build;
  recipe: Recipe | DockerfileRecipe;
  log: BuildLog;
  signal: AbortSignal;
  timeoutMs: number;
  /** Reports the step that it is at: see `BuildFailure`. */
  at(step: number): void;
}

export interface Built {
  snapshot: SnapshotId;
  /** How the template wants to be run, if the build says so. */
  config?: TemplateConfig;
}

/** Where a build has come to before its start command. */
interface Reached {
  origin: Origin;
  surroundings: Surroundings;
  /** Sandboxes of the origin have other surroundings. */
  changed: boolean;
  config?: TemplateConfig;
}

const READY_TIMEOUT_MS = 5 * 60_000;
const DEFAULTS = SandboxSpecSchema.parse({});

export const isDockerfile = (recipe: Recipe | DockerfileRecipe): recipe is DockerfileRecipe =>
  'dockerfile' in recipe;

export async function runBuild(run: BuildRun): Promise<Built> {
  const { control, principal, recipe, log } = run;
  const { start } = recipe;
  const network = isDockerfile(recipe) ? recipe.network : undefined;
  const sandboxes = buildSandboxes({ ...run, network });
  let result: Built | undefined;
  try {
    run.at(0);
    const reached = isDockerfile(recipe)
      ? await fromDockerfile(run, recipe, sandboxes)
      : await fromRecipe(run, recipe, sandboxes);
    const { origin, surroundings, changed, config } = reached;
    const asConfig = config && { config };
    // A snapshot of the build is a template's from now on, if sandboxes of it are as they should be.
    if ('snapshot' in origin && !changed && start === undefined)
      return (result = { snapshot: origin.snapshot, ...asConfig });
    const shell = config && (config.shell.length > 0 ? config.shell : DEFAULT_SHELL);
    const final = await sandboxes.make(origin, {
      surroundings,
      ...(start !== undefined && { cmd: shell ? [...shell, start] : loginShell(start) }),
    });
    if (config) await makeVolumes(run, final.id, config);
    if (start !== undefined) log.step(`START ${start}`);
    await ready(run, final.id, surroundings);
    return (result = { snapshot: await keep(run, final.id, start !== undefined), ...asConfig });
  } finally {
    await sandboxes.removeAll();
    for (const snapshot of sandboxes.passing)
      if (snapshot !== result?.snapshot) await control.removeSnapshot(principal, snapshot);
  }
}

async function fromRecipe(run: BuildRun, recipe: Recipe, sandboxes: BuildSandboxes): Promise<Reached> {
  const { log, principal } = run;
  log.step(`FROM ${recipe.from}`);
  const caching = recipe.caching ?? 'none';
  const key = caching === 'none' ? '' : (await baseOf(run, recipe.from)).key;
  let first: Surroundings | undefined;
  const count = recipe.steps.length;
  const { origin, state } = await runStage<Surroundings>({
    ...run,
    project: run.principal.project,
    sandboxes,
    caching,
    origin: { template: recipe.from },
    key,
    steps: recipeSteps(recipe, run.files, principal),
    async initial(enter) {
      const { env, workdir, user } = (await enter()).row.spec;
      return (first = { env, workdir, user });
    },
    label: (index) => `[${index + 1}/${count}]`,
    at: (index) => run.at(index + 1),
  });
  run.at(count + 1);
  return { origin, surroundings: state, changed: state !== first };
}

async function fromDockerfile(
  run: BuildRun,
  recipe: DockerfileRecipe,
  sandboxes: BuildSandboxes,
): Promise<Reached> {
  const steps = { last: 0 };
  const { origin, state } = await runDockerfile({
    ...run,
    recipe,
    project: run.principal.project,
    sandboxes,
    caching: recipe.caching,
    architecture: thisArchitecture(),
    baseOf: (name) => baseOf(run, name),
    at: (step) => run.at((steps.last = step)),
  });
  run.at(steps.last + 1);
  const { config } = state;
  return {
    origin,
    changed: true,
    config,
    surroundings: {
      env: config.env,
      workdir: config.workdir || DEFAULTS.workdir,
      user: config.user || DEFAULTS.user,
    },
  };
}

/** What a name leads to: a template of the project or of the backend, or an image. */
async function baseOf({ control, principal }: BuildRun, name: string): Promise<Base> {
  const template = (await control.templates(principal)).find((each) => each.name === name);
  if (template?.snapshot)
    return {
      origin: { template: name },
      key: hashOf(['snapshot', template.snapshot]),
      config: template.config ?? NO_TEMPLATE_CONFIG,
    };
  if (template)
    return { origin: { template: name }, key: hashOf(['template', name]), config: NO_TEMPLATE_CONFIG };
  const image = await control.images.resolve(principal, name);
  if (!image)
    return { origin: { template: name }, key: hashOf(['template', name]), config: NO_TEMPLATE_CONFIG };
  const origin = { template: image.pinned };
  return { origin, key: hashOf(['image', image.pinned]), config: configOfImage(image.config) };
}

/** Directories of the template's own files: every sandbox has its own. */
async function makeVolumes(
  { control, principal, signal }: BuildRun,
  sandbox: string,
  { volumes }: TemplateConfig,
) {
  if (volumes.length === 0) return;
  const { guest } = await control.enter(principal, sandbox);
  for (const volume of volumes)
    await makeDirectories(guest.files('root'), posix.resolve('/', volume), undefined, signal);
}

async function ready(
  { control, principal, recipe, log, signal }: BuildRun,
  sandbox: string,
  surroundings: Surroundings,
): Promise<void> {
  if (recipe.ready === undefined) return;
  log.step(`READY ${readyText(recipe.ready)}`);
  const { guest } = await control.enter(principal, sandbox);
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
  { control, principal, build, log }: BuildRun,
  id: string,
  started: boolean,
): Promise<SnapshotId> {
  const labels = { [OF_BUILD]: build.id };
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
export function explained(error: unknown, from: string): unknown {
  const isAway = isCayError(error, 'unavailable');
  if (!isAway && !isCayError(error, 'not_found') && !isCayError(error, 'unsupported')) return error;
  return new CayError(
    isAway ? 'unavailable' : 'not_found',
    `Cannot build from "${from.slice(0, 200)}": ${error.message}`,
    { hint: 'build from "base", from a template of your own, or from an image', cause: error },
  );
}
