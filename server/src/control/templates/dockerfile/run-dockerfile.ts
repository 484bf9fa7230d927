/** Runs the stages of a Dockerfile. Stages that the target does not need are left out. */
import { NO_TEMPLATE_CONFIG, type ImageConfig, type TemplateConfig } from '@cay/sdk/protocol';
import { NO_CONTEXT, openContext, type BuildContext } from '../builds/build-context.ts';
import type { BuildFiles } from '../builds/build-files.ts';
import type { BuildSandboxes } from '../builds/build-sandboxes.ts';
import type { DockerfileRecipe } from '../builds/build.ts';
import { hashOf, runStage, type StageRun } from '../builds/run-stage.ts';
import type { Origin, StageResult } from '../builds/step.ts';
import { dockerfileSteps, triggersOf } from './dockerfile-steps.ts';
import { parseDockerfile } from './parse-dockerfile.ts';
import { planStages, stageCalled, type Stage, type StagePlan } from './plan-stages.ts';
import { DEFAULT_PATH, EMPTY_STATE, type StageState } from './stage-state.ts';
import type { StepSources } from './step-options.ts';

export interface Base {
  origin: Origin;
  /** Changes when what the name leads to does. */
  key: string;
  config: TemplateConfig;
}

export interface DockerfileRun extends Pick<
  StageRun<StageState>,
  'cache' | 'caching' | 'sandboxes' | 'log' | 'signal'
> {
  recipe: DockerfileRecipe;
  project: string;
  files: Pick<BuildFiles, 'pathOf'>;
  architecture: string;
  /** What FROM means: a template, or an image. */
  baseOf(name: string): Promise<Base>;
  /** The step that is being run, of how many. */
  at(step: number): void;
}

export const planOf = (recipe: DockerfileRecipe, architecture: string): StagePlan =>
  planStages(parseDockerfile(recipe.dockerfile), {
    args: recipe.args,
    architecture,
    ...(recipe.target !== undefined && { target: recipe.target }),
  });

export async function runDockerfile(run: DockerfileRun): Promise<StageResult<StageState>> {
  const { recipe, log, sandboxes } = run;
  const plan = planOf(recipe, run.architecture);
  for (const note of plan.notes) log.add('warn', note);
  const done = new Map<Stage, StageResult<StageState>>();
  const others = new Map<string, StageResult<unknown>>();
  const opened = new Map<string, ReturnType<BuildSandboxes['make']>>();
  let context: Promise<BuildContext> | undefined;
  let step = 0;
  const total = plan.order.reduce((sum, { instructions }) => sum + instructions.length, 0);

  const sourcesOf = (stage: Stage): StepSources => ({
    context: () =>
      (context ??=
        recipe.context === undefined
          ? Promise.resolve(NO_CONTEXT)
          : run.files
              .pathOf(run.project, recipe.context)
              .then((path) => openContext(path, { owner: run.project, signal: run.signal }))),
    async stage(text) {
      const earlier = stageCalled(plan.stages, text, stage.index);
      if (earlier) return done.get(earlier)!;
      let other = others.get(text);
      if (!other) {
        const { origin, key } = await run.baseOf(text);
        others.set(text, (other = { origin, key, state: undefined }));
      }
      return other;
    },
    async guestOf({ origin }) {
      const name = JSON.stringify(origin);
      let made = opened.get(name);
      if (!made) opened.set(name, (made = sandboxes.make(origin)));
      return (await sandboxes.enter(await made)).guest;
    },
  });

  for (const stage of plan.order) {
    const base = await beginning(stage, done, plan, run);
    const triggers = triggersOf(base.state.config.onBuild, stage.line);
    const state = { ...base.state, config: { ...base.state.config, onBuild: [] } };
    const name = stage.name ?? (plan.order.length > 1 ? `stage ${stage.index}` : '');
    log.step(
      `FROM ${'text' in stage.from ? stage.from.text : (plan.stages[stage.from.stage]!.name ?? `stage ${stage.from.stage}`)}${stage.name === undefined ? '' : ` AS ${stage.name}`}`,
    );
    const steps = dockerfileSteps([...triggers, ...stage.instructions], {
      plan,
      args: recipe.args,
      secrets: recipe.secrets,
      sources: sourcesOf(stage),
      note: (text) => log.add('warn', text),
    });
    const before = step;
    done.set(
      stage,
      await runStage<StageState>({
        ...run,
        origin: base.origin,
        key: base.key,
        steps,
        initial: async () => state,
        label: (index) =>
          `[${name === '' ? '' : `${name} `}${before + index + 1}/${total + triggers.length}]`,
        at: (index) => run.at(before + index + 1),
      }),
    );
    step += stage.instructions.length;
  }
  return done.get(plan.order.at(-1)!)!;
}

async function beginning(
  { from }: Stage,
  done: ReadonlyMap<Stage, StageResult<StageState>>,
  plan: StagePlan,
  run: DockerfileRun,
): Promise<StageResult<StageState>> {
  if ('stage' in from) {
    const { origin, key, state } = done.get(plan.stages[from.stage]!)!;
    return { origin, key: hashOf([key, 'stage']), state: { ...state, args: {}, hasOwnCmd: false } };
  }
  run.at(0);
  const { origin, key, config } = await run.baseOf(from.text);
  // As in Docker: $PATH is never empty.
  const env = { PATH: DEFAULT_PATH, ...config.env };
  return { origin, key, state: { ...EMPTY_STATE, config: { ...config, env } } };
}

/** What an image says, as a template says it. */
export function configOfImage(image: ImageConfig): TemplateConfig {
  const pairs = image.env.map(
    (line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const,
  );
  return {
    ...NO_TEMPLATE_CONFIG,
    env: Object.fromEntries(pairs),
    user: image.user,
    workdir: image.workdir,
    entrypoint: image.entrypoint,
    cmd: image.cmd,
    exposed: image.ports.map((port) => `${port}/tcp`),
    volumes: image.volumes,
  };
}

/** What this machine's processor is called in images. */
export const thisArchitecture = (): string => (process.arch === 'x64' ? 'amd64' : process.arch);
