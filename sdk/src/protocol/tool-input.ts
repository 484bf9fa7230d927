/**
 * What each agent tool takes, in the shape that models know. The descriptions are written for models: they
 * become the JSON Schemas that model APIs get.
 */
import { z } from 'zod';
import { execText } from './spec.ts';

const MOST_TEXT = 8 * 1024 * 1024;
/** Texts that travel in one message to the guest. */
const MOST_EDIT = 256 * 1024;

const Path = execText(4096).min(1);
const FilePath = Path.describe(
  'The path of the file; one that is not absolute is below the working directory',
);
const Directory = Path.optional().describe('A directory. Default: the working directory of the sandbox');
const TimeoutMs = z
  .int()
  .min(1)
  .max(600_000)
  .optional()
  .describe('After so many milliseconds the command is ended, at most 600000');
const BashId = z
  .string()
  .regex(/^[A-Za-z0-9_.-]{1,128}$/)
  .describe('The id of a command that was started in the background');
const Count = (max: number) => z.int().min(0).max(max);

const EditFields = {
  old_string: z.string().max(MOST_EDIT).describe('The text to replace, exactly as it is in the file'),
  new_string: z.string().max(MOST_EDIT).describe('The text that takes its place'),
  replace_all: z.boolean().optional().describe('Replace every occurrence. Default false'),
};
const Repository = { repo: Directory.describe('The working tree of the repository') };
const Paths = z.array(execText(4096).min(1)).min(1).max(1000);
/** Never taken for an option. */
const Revision = z
  .string()
  .min(1)
  .max(250)
  .regex(/^[^-\s\0][^\s\0]*$/, 'must be a revision, such as "HEAD~1" or "main"');

export const TOOL_INPUTS = {
  bash: z
    .object({
      command: execText(128 * 1024)
        .min(1)
        .describe('The command line for bash'),
      timeout: TimeoutMs,
      description: z.string().max(1000).optional().describe('What the command does, in a few words'),
      run_in_background: z
        .boolean()
        .optional()
        .describe('Return at once with a bash_id; read its output with bash_output'),
      workdir: Directory,
    })
    .strict(),
  bash_output: z
    .object({
      bash_id: BashId,
      offset: Count(Number.MAX_SAFE_INTEGER)
        .optional()
        .describe('Begin at this byte of the output: the `next_offset` of the last call. Default 0'),
      wait_ms: Count(300_000)
        .optional()
        .describe('How long to wait for new output or the end of the command. Default 0'),
    })
    .strict(),
  bash_input: z
    .object({
      bash_id: BashId,
      data: z.string().max(MOST_EDIT).describe('Text for the standard input of the command'),
      eof: z.boolean().optional().describe('Close the standard input afterwards'),
    })
    .strict(),
  bash_kill: z.object({ bash_id: BashId }).strict(),
  read: z
    .object({
      file_path: FilePath,
      offset: z.int().min(1).max(1_000_000_000).optional().describe('The first line to read, from 1'),
      limit: z.int().min(1).max(100_000).optional().describe('How many lines to read. Default 2000'),
    })
    .strict(),
  write: z
    .object({ file_path: FilePath, content: z.string().max(MOST_TEXT).describe('The whole content') })
    .strict(),
  edit: z.object({ file_path: FilePath, ...EditFields }).strict(),
  multi_edit: z
    .object({
      file_path: FilePath,
      edits: z
        .array(z.object(EditFields).strict())
        .min(1)
        .max(200)
        .describe('Edits that are made one after the other: all of them or none'),
    })
    .strict(),
  apply_patch: z
    .object({
      patch: z
        .string()
        .min(1)
        .max(900 * 1024)
        .describe('A patch from "*** Begin Patch" to "*** End Patch"'),
    })
    .strict(),
  list: z
    .object({
      path: Directory,
      depth: z.int().min(1).max(64).optional().describe('1, the default, lists the directory itself'),
      ignore: z.array(execText(4096).min(1)).max(100).optional().describe('Globs of names to leave out'),
    })
    .strict(),
  glob: z
    .object({
      pattern: execText(4096).min(1).describe('A glob such as "**/*.ts" or "src/*.{js,jsx}"'),
      path: Directory,
      limit: Count(100_000).optional().describe('How many paths at most. Default 100'),
    })
    .strict(),
  grep: z
    .object({
      pattern: z.string().min(1).max(65_536).describe('A regular expression'),
      path: Path.optional().describe('A file or directory. Default: the working directory of the sandbox'),
      glob: execText(4096).min(1).optional().describe('Only files whose path matches, such as "*.ts"'),
      type: z.string().min(1).max(32).optional().describe('Only files of this type, such as "py" or "rust"'),
      output_mode: z
        .enum(['content', 'files_with_matches', 'count'])
        .optional()
        .describe('Lines, paths (the default), or how many lines match in each file'),
      '-A': Count(100).optional().describe('Lines to show after each match'),
      '-B': Count(100).optional().describe('Lines to show before each match'),
      '-C': Count(100).optional().describe('Lines to show around each match'),
      '-n': z.boolean().optional().describe('Show line numbers. Default true'),
      '-i': z.boolean().optional().describe('Take upper and lower case for the same'),
      '-o': z.boolean().optional().describe('Show only what matches of each line'),
      multiline: z.boolean().optional().describe('Matches may span lines, and "." matches line breaks'),
      head_limit: Count(10_000).optional().describe('How many lines or paths at most. Default 250'),
      offset: Count(10_000).optional().describe('How many lines or paths to leave out at the start'),
      no_ignore: z.boolean().optional().describe('Search files that .gitignore names too'),
    })
    .strict(),
  git_status: z.object(Repository).strict(),
  git_diff: z
    .object({
      ...Repository,
      staged: z.boolean().optional().describe('What is staged, rather than what is not'),
      from: Revision.optional().describe('Compare with this revision'),
      to: Revision.optional().describe('Compare `from` with this revision rather than with the files'),
      paths: Paths.optional(),
    })
    .strict(),
  git_log: z
    .object({
      ...Repository,
      limit: z.int().min(1).max(1000).optional().describe('How many commits. Default 20'),
      revision: Revision.optional(),
      paths: Paths.optional(),
    })
    .strict(),
  git_show: z.object({ ...Repository, revision: Revision }).strict(),
  git_add: z.object({ ...Repository, paths: Paths }).strict(),
  git_commit: z
    .object({
      ...Repository,
      message: execText(64 * 1024).min(1),
      all: z.boolean().optional().describe('Commit every changed file that git knows'),
      author_name: execText(200).min(1).optional(),
      author_email: execText(200).min(1).optional(),
    })
    .strict(),
  git_checkout: z
    .object({
      ...Repository,
      branch: Revision,
      create: z.boolean().optional().describe('Make the branch'),
    })
    .strict(),
  git_clone: z
    .object({
      url: execText(4096).regex(/^[^-]/).describe('Where the repository is'),
      path: Path.optional().describe('Where to put it'),
      branch: Revision.optional(),
      depth: z.int().min(1).max(1_000_000).optional().describe('How many commits of its history'),
      timeout: TimeoutMs,
    })
    .strict(),
} as const;

export type ToolName = keyof typeof TOOL_INPUTS;
export const TOOL_NAMES = Object.keys(TOOL_INPUTS) as ToolName[];
/** What a tool is given. */
export type ToolInput<Name extends ToolName> = z.infer<(typeof TOOL_INPUTS)[Name]>;
