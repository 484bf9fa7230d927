/** The steps of a recipe. */
import { createHash } from 'node:crypto';
import type { Principal } from '../../tenants/principal.ts';
import type { BuildFiles } from './build-files.ts';
import type { BuildStep, Recipe } from './build.ts';
import type { Surroundings } from './run-in.ts';
import { runStep } from './run-step.ts';
import type { Step } from './step.ts';

export function recipeSteps(
  { steps }: Recipe,
  files: Pick<BuildFiles, 'read'>,
  { project }: Principal,
): Step<Surroundings>[] {
  return steps.map((step) => ({
    shown: `${step.type.toUpperCase()} ${shown(step)}`,
    touches: true,
    key: async () =>
      step.type === 'write'
        ? { ...step, content: createHash('sha256').update(step.content).digest('hex') }
        : step,
    run: async (surroundings, { guest, log, signal }) =>
      runStep({ guest: await guest(), signal, surroundings, log }, step, files, project),
  }));
}

function shown(step: BuildStep): string {
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
