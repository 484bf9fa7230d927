import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Principal } from '../../tenants/principal.ts';
import { recordedReady } from './await-ready.ts';
import { pruneBuilds, removeSuperseded } from './build-leftovers.ts';
import type { BuildLog } from './build-log.ts';
import type { BuildParts } from './build-parts.ts';
import type { Build, BuildFailure, DockerfileRecipe, Recipe } from './build.ts';
import { explained, isDockerfile, runBuild } from './run-build.ts';
import { stepCache } from './step-cache.ts';

export type AnyRecipe = Recipe | DockerfileRecipe;

/**
 * Runs a build that is recorded as building, saves its templates, and records how it ended. Rejects only if
 * that cannot be recorded.
 */
export async function performBuild(
  parts: BuildParts,
  principal: Principal,
  build: Build,
  { recipe: given, log, cancelled }: { recipe: AnyRecipe; log: BuildLog; cancelled: AbortSignal },
): Promise<void> {
  const { control, records, files, timeoutMs, closing, now, onError } = parts;
  const { builds } = records;
  let step = 0;
  const mostMs = Math.min(timeoutMs, (isDockerfile(given) ? given.timeoutMs : undefined) ?? timeoutMs);
  const deadline = AbortSignal.timeout(mostMs);
  const signal = AbortSignal.any([closing, cancelled, deadline]);
  const cache = stepCache({ control, records, principal, now, ...parts.cache });
  try {
    signal.throwIfAborted();
    const recipe = await inherited(parts, principal, given);
    await builds.started(build.id, commandsOf(recipe));
    const at = (number: number) => (step = number);
    const run = { control, files, cache, principal, build, recipe, log, signal, timeoutMs: mostMs, at };
    const { snapshot, config } = await runBuild(run).catch((error: unknown) => {
      throw step === 0 && !isDockerfile(recipe) ? explained(error, recipe.from) : error;
    });
    for (const name of build.names)
      await control.saveTemplate(
        principal,
        name,
        { snapshot, replace: true, ...(config && { config }) },
        { keepNetwork: true },
      );
    log.add('info', `${build.names.join(', ')} is ready`);
    await builds.ended(build.id, { snapshot }, log.entries, now());
    await removeSuperseded(parts, principal);
    await pruneBuilds(records, principal.project, now());
    await cache.trim();
  } catch (error) {
    const why = closing.aborted
      ? new CayError('unavailable', 'The server was stopped while this was being built')
      : cancelled.aborted
        ? new CayError('cancelled', 'The build was cancelled')
        : deadline.aborted
          ? new CayError('deadline_exceeded', `The build took longer than ${Math.round(mostMs / 1000)} s`)
          : error;
    const failure = failureOf(why, step, isDockerfile(given) ? Math.max(step, 1) : given.steps.length);
    log.add('error', withHint(failure));
    await builds.ended(build.id, { failure }, log.entries, now());
    if (!isCayError(why)) onError(error);
  }
}

/** Inherits the start command of its base template unless the recipe has another. */
async function inherited(
  { control, records }: BuildParts,
  principal: Principal,
  recipe: AnyRecipe,
): Promise<AnyRecipe> {
  if (isDockerfile(recipe)) return recipe;
  const parent = (await control.templates(principal)).find(({ name }) => name === recipe.from);
  const before = parent?.snapshot ? await records.builds.of(parent.snapshot) : undefined;
  if (recipe.start !== undefined || !before?.start) return recipe;
  return { ...recipe, start: before.start, ready: recipe.ready ?? before.ready ?? undefined };
}

export const commandsOf = ({ start, ready }: AnyRecipe) => ({
  start: start ?? null,
  ready: ready === undefined ? null : recordedReady(ready),
});

/** In one line, where there is no place for a hint. */
export function withHint({ message, hint }: Pick<BuildFailure, 'hint' | 'message'>): string {
  return hint === undefined ? message : `${message} (${hint})`;
}

function failureOf(error: unknown, step: number, steps: number): BuildFailure {
  if (!isCayError(error)) return { message: 'Internal error', step, steps };
  const { command, exitCode, unknownUser } = error.details;
  return {
    message: error.message,
    ...(error.hint !== undefined && { hint: error.hint }),
    step,
    steps,
    ...(typeof command === 'string' && { command }),
    ...(typeof exitCode === 'number' && { exitCode }),
    ...(typeof unknownUser === 'string' && { unknownUser }),
  };
}
