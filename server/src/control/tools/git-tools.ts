/** `git_*`: git without a shell, so that no parameter is taken for a part of a command line. */
import type { ToolInput } from '@cay/sdk/protocol';
import { outcomeOf, runCommand, type CommandParts } from './run-command.ts';
import type { RunningCall, ToolOutcome } from './tool.ts';

/** Nothing asks for a password or opens an editor, and nothing pages. */
const ENV = { GIT_TERMINAL_PROMPT: '0', GIT_PAGER: 'cat', GIT_EDITOR: 'true', LC_ALL: 'C.UTF-8' };

async function git(
  parts: CommandParts,
  running: RunningCall,
  repo: string | undefined,
  args: string[],
): Promise<ToolOutcome> {
  const { workdir } = running;
  const where = repo === undefined ? workdir : repo.startsWith('/') ? repo : `${workdir}/${repo}`;
  const request = { argv: ['git', '--no-pager', ...args], env: ENV, workdir: where };
  return outcomeOf(await runCommand(parts, running, request), running.timeoutMs);
}

const behind = (paths: string[] | undefined) => (paths === undefined ? [] : ['--', ...paths]);

type Git<Input> = (parts: CommandParts, running: RunningCall, input: Input) => Promise<ToolOutcome>;

export const gitStatus: Git<ToolInput<'git_status'>> = (parts, running, { repo }) =>
  git(parts, running, repo, ['status', '--short', '--branch']);

export const gitDiff: Git<ToolInput<'git_diff'>> = (parts, running, { repo, staged, from, to, paths }) =>
  git(parts, running, repo, [
    'diff',
    ...(staged ? ['--staged'] : []),
    ...(from === undefined ? [] : [from]),
    ...(to === undefined ? [] : [to]),
    ...behind(paths),
  ]);

export const gitLog: Git<ToolInput<'git_log'>> = (parts, running, { repo, limit = 20, revision, paths }) =>
  git(parts, running, repo, [
    'log',
    `--max-count=${limit}`,
    '--date=iso-strict',
    '--stat=100',
    ...(revision === undefined ? [] : [revision]),
    ...behind(paths),
  ]);

export const gitShow: Git<ToolInput<'git_show'>> = (parts, running, { repo, revision }) =>
  git(parts, running, repo, ['show', revision, '--']);

export const gitAdd: Git<ToolInput<'git_add'>> = (parts, running, { repo, paths }) =>
  git(parts, running, repo, ['add', '--verbose', ...behind(paths)]);

export const gitCommit: Git<ToolInput<'git_commit'>> = (parts, running, input) =>
  git(parts, running, input.repo, [
    ...(input.author_name === undefined ? [] : ['-c', `user.name=${input.author_name}`]),
    ...(input.author_email === undefined ? [] : ['-c', `user.email=${input.author_email}`]),
    'commit',
    ...(input.all ? ['--all'] : []),
    `--message=${input.message}`,
  ]);

export const gitCheckout: Git<ToolInput<'git_checkout'>> = (parts, running, { repo, branch, create }) =>
  git(parts, running, repo, ['checkout', ...(create ? ['-b', branch] : [branch, '--'])]);

export const gitClone: Git<ToolInput<'git_clone'>> = (parts, running, { url, path, branch, depth }) =>
  git(parts, running, undefined, [
    'clone',
    ...(branch === undefined ? [] : [`--branch=${branch}`]),
    ...(depth === undefined ? [] : [`--depth=${depth}`]),
    '--',
    url,
    ...(path === undefined ? [] : [path]),
  ]);
