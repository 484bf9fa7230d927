/** The canonical tools, in the shape that Claude Code's tools have. */
import { TOOL_INPUTS, TOOL_NAMES, type ToolInput, type ToolName } from '@cay/sdk/protocol';
import { bash, bashInput, bashKill, bashOutput } from '../bash-tools.ts';
import {
  gitAdd,
  gitCheckout,
  gitClone,
  gitCommit,
  gitDiff,
  gitLog,
  gitShow,
  gitStatus,
} from '../git-tools.ts';
import { applyPatch, edit, glob, grep, list, multiEdit, read, write } from '../guest-tools.ts';
import { COMMAND_TIMEOUT_MS, GUEST_TIMEOUT_MS } from '../limits.ts';
import type { RunningCall, ToolOutcome } from '../tool.ts';
import { dialectOf, type DialectTool, type ToolEffect, type ToolParts } from './dialect.ts';

interface Canonical<Name extends ToolName> {
  title: string;
  description: string;
  tier: 1 | 2;
  effect: ToolEffect;
  run(parts: ToolParts, running: RunningCall, input: ToolInput<Name>): Promise<ToolOutcome>;
}

const TOOLS: { [Name in ToolName]: Canonical<Name> } = {
  bash: {
    title: 'Run a command',
    description:
      'Runs a command line with bash in the sandbox and returns its output and exit code. ' +
      'Long output keeps its head and tail, and the whole is saved in a file that the answer names. ' +
      'Use read, edit, glob and grep rather than cat, sed, find and grep: they are faster.',
    tier: 2,
    effect: 'commands',
    run: bash,
  },
  bash_output: {
    title: 'Read a background command',
    description:
      'Reads new output of a command that was started with run_in_background, and says whether it still runs.',
    tier: 1,
    effect: 'reads',
    run: bashOutput,
  },
  bash_input: {
    title: 'Write to a background command',
    description: 'Writes text to the standard input of a command that was started with run_in_background.',
    tier: 1,
    effect: 'changes',
    run: bashInput,
  },
  bash_kill: {
    title: 'End a background command',
    description: 'Ends a command that was started with run_in_background, with all its processes.',
    tier: 1,
    effect: 'changes',
    run: bashKill,
  },
  read: {
    title: 'Read a file',
    description:
      'Reads a text file with line numbers, 2000 lines unless told otherwise, or an image. ' +
      'Long lines are cut. Read on with offset.',
    tier: 1,
    effect: 'reads',
    run: read,
  },
  write: {
    title: 'Write a file',
    description: 'Writes a whole file, and makes its directories. An existing file is replaced.',
    tier: 1,
    effect: 'changes',
    run: write,
  },
  edit: {
    title: 'Edit a file',
    description:
      'Replaces old_string by new_string in a file. old_string must occur exactly once, unless replace_all is true. ' +
      'An empty old_string makes a new file.',
    tier: 1,
    effect: 'changes',
    run: edit,
  },
  multi_edit: {
    title: 'Edit a file in several places',
    description: 'Makes several edits of one file, one after the other: all of them or none.',
    tier: 1,
    effect: 'changes',
    run: multiEdit,
  },
  apply_patch: {
    title: 'Apply a patch',
    description:
      'Applies a patch to files. It begins with "*** Begin Patch" and ends with "*** End Patch"; between are ' +
      '"*** Add File: path" with lines that begin with "+", "*** Delete File: path", and "*** Update File: path", ' +
      'optionally "*** Move to: path", with chunks that begin with "@@" and have lines that begin with " ", "-" or "+".',
    tier: 1,
    effect: 'changes',
    run: applyPatch,
  },
  list: {
    title: 'List a directory',
    description: 'Lists the names in a directory, with "/" behind directories.',
    tier: 1,
    effect: 'reads',
    run: list,
  },
  glob: {
    title: 'Find files',
    description:
      'Finds files by a glob of their path, newest first. Files that .gitignore names are left out.',
    tier: 1,
    effect: 'reads',
    run: glob,
  },
  grep: {
    title: 'Search files',
    description:
      'Searches files with a regular expression (the syntax of ripgrep). ' +
      'Files that .gitignore names and binary files are left out.',
    tier: 1,
    effect: 'reads',
    run: grep,
  },
  git_status: {
    title: 'Git status',
    description: 'Shows the branch and the changed files of a repository.',
    tier: 2,
    effect: 'commands',
    run: gitStatus,
  },
  git_diff: {
    title: 'Git diff',
    description: 'Shows changes of the files, of what is staged, or between revisions.',
    tier: 2,
    effect: 'commands',
    run: gitDiff,
  },
  git_log: {
    title: 'Git log',
    description: 'Shows commits, newest first.',
    tier: 2,
    effect: 'commands',
    run: gitLog,
  },
  git_show: {
    title: 'Git show',
    description: 'Shows a commit with its changes.',
    tier: 2,
    effect: 'commands',
    run: gitShow,
  },
  git_add: {
    title: 'Git add',
    description: 'Stages files for the next commit.',
    tier: 2,
    effect: 'commands',
    run: gitAdd,
  },
  git_commit: {
    title: 'Git commit',
    description: 'Commits what is staged.',
    tier: 2,
    effect: 'commands',
    run: gitCommit,
  },
  git_checkout: {
    title: 'Git checkout',
    description: 'Switches to a branch or revision.',
    tier: 2,
    effect: 'commands',
    run: gitCheckout,
  },
  git_clone: {
    title: 'Git clone',
    description: 'Clones a repository.',
    tier: 2,
    effect: 'commands',
    run: gitClone,
  },
};

const hasTimeout = (input: unknown): input is { timeout?: number } =>
  typeof input === 'object' && input !== null && 'timeout' in input;

export const CLAUDE = dialectOf(
  TOOL_NAMES.map((name): DialectTool => {
    const { run, ...tool } = TOOLS[name];
    return {
      name,
      ...tool,
      schema: TOOL_INPUTS[name],
      timeoutMs: tool.tier === 2 ? COMMAND_TIMEOUT_MS : GUEST_TIMEOUT_MS,
      timeoutOf: (input) => (hasTimeout(input) ? input.timeout : undefined),
      run: run as DialectTool['run'],
    };
  }),
);
