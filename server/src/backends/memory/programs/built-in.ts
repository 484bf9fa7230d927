import type { Program } from '../program.ts';
import { FILE_PROGRAMS } from './file-programs.ts';
import { shell } from './shell.ts';
import { TEXT_PROGRAMS } from './text-programs.ts';

/** The programs that every sandbox of the memory backend has. */
export const BUILT_IN: Record<string, Program> = {
  ...TEXT_PROGRAMS,
  ...FILE_PROGRAMS,
  sh: shell,
  bash: shell,
};
