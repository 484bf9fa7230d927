/** Builds as E2B's API shows them. */
import type { Build, BuildFailure, BuildLogEntry } from '../../../../control/templates/builds/build.ts';
import { DEFAULT_TAG } from './template-name.ts';

const STATUS = { waiting: 'waiting', building: 'building', ready: 'ready', failed: 'error' } as const;

export function showBuild(build: Build, entries: BuildLogEntry[]) {
  const { id, template, state, failure } = build;
  return {
    templateID: template,
    buildID: id,
    status: STATUS[state],
    logs: [],
    logEntries: entries.map(({ atMs, level, message }) => ({
      timestamp: new Date(atMs).toISOString(),
      level,
      message,
    })),
    ...(failure && { reason: { message: reasonOf(failure), step: stepOf(failure), logEntries: [] } }),
  };
}

/** E2B's own wording, which programs may rely on. */
function reasonOf({ message, hint, command, exitCode, unknownUser }: BuildFailure): string {
  if (command === undefined) return hint === undefined ? message : `${message} (${hint})`;
  const failed = `failed to run command '${command}'`;
  if (unknownUser !== undefined)
    return `${failed}: command failed: unauthenticated: invalid username: '${unknownUser}'`;
  return exitCode === undefined ? message : `${failed}: exit status ${exitCode}`;
}

function stepOf({ step, steps }: BuildFailure): string {
  return step === 0 ? 'base' : step > steps ? 'finalize' : String(step);
}

export function tagsOf({ names }: Pick<Build, 'names'>): string[] {
  return names.map((name) => name.split(':')[1] ?? DEFAULT_TAG);
}
