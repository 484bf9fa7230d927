/** What the steps of a Dockerfile share. */
import type { Guest } from '../../../guest/guest.ts';
import type { BuildContext } from '../builds/build-context.ts';
import type { StageResult } from '../builds/step.ts';
import type { Instruction } from './dockerfile.ts';
import { expandWord, matchingBudget } from './expand-word.ts';
import { said, type StagePlan } from './plan-stages.ts';
import { variableOf, type StageState } from './stage-state.ts';

export interface StepSources {
  context(): Promise<BuildContext>;
  /** An earlier stage or an image, by the text of `--from`. */
  stage(text: string): Promise<StageResult<unknown>>;
  /** A sandbox that has its files. */
  guestOf(stage: StageResult<unknown>): Promise<Guest>;
}

export interface StepOptions {
  plan: Pick<StagePlan, 'escape' | 'globals'>;
  /** `--build-arg`. */
  args: Readonly<Record<string, string>>;
  secrets: Readonly<Record<string, string>>;
  sources: StepSources;
  note(text: string): void;
}

const MOST_SHOWN = 500;

export function shownOf({ name, flags, rest, heredocs }: Instruction): string {
  const written = flags.map((flag) => `--${flag.name}${flag.value === undefined ? '' : `=${flag.value}`}`);
  const text = [name, ...written, rest].join(' ');
  const more =
    heredocs.length > 0
      ? ` (${heredocs.reduce((sum, { content }) => sum + content.split('\n').length - 1, 0)} lines)`
      : '';
  return (text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text) + more;
}

/** Expands variables by what the stage has said so far. */
export function expanderOf(
  { line }: Pick<Instruction, 'line'>,
  { plan: { escape } }: Pick<StepOptions, 'plan'>,
  state: StageState,
) {
  const value = variableOf(state);
  const matching = matchingBudget();
  return (text: string) => said(line, () => expandWord(text, { value, escape, matching }));
}
