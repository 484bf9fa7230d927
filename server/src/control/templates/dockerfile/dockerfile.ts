/**
 * A Dockerfile as it is written: instructions with their flags, arguments and here-documents. Nothing is
 * expanded yet: what a variable is worth depends on the stage and its base image.
 */
import { CayError } from '@cay/sdk/protocol';

export const INSTRUCTIONS = [
  'ADD',
  'ARG',
  'CMD',
  'COPY',
  'ENTRYPOINT',
  'ENV',
  'EXPOSE',
  'FROM',
  'HEALTHCHECK',
  'LABEL',
  'MAINTAINER',
  'ONBUILD',
  'RUN',
  'SHELL',
  'STOPSIGNAL',
  'USER',
  'VOLUME',
  'WORKDIR',
] as const;
export type InstructionName = (typeof INSTRUCTIONS)[number];

export interface Flag {
  name: string;
  /** Absent for a flag that stands alone, such as `--link`. */
  value?: string;
}

export interface Heredoc {
  /** The word that ends it. */
  name: string;
  content: string;
  /** Variables in it are expanded: the word was not quoted. */
  expands: boolean;
  /** Tabs at the beginning of lines are left out: `<<-EOF`. */
  chomps: boolean;
}

export interface Instruction {
  name: InstructionName;
  flags: Flag[];
  /** What follows name and flags, with continued lines joined. */
  rest: string;
  heredocs: Heredoc[];
  /** The number of its first line. */
  line: number;
}

export interface Dockerfile {
  /** The character that continues lines and takes the meaning of others: a backslash, or a backtick. */
  escape: string;
  /** Of `# syntax=`: another front end is named, which is not used. */
  syntax?: string;
  instructions: Instruction[];
}

export function dockerfileError(line: number, why: string, hint?: string): CayError {
  return new CayError('invalid_argument', `Dockerfile line ${line}: ${why}`, {
    details: { line },
    ...(hint !== undefined && { hint }),
  });
}
