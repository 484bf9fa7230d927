import type { ExecBody } from '@cay/sdk/protocol';
import { ownText } from '../../lib/own-text.ts';

const RECORDED_ARGUMENTS = 64;
const RECORDED_TEXT = 4096;

/** What is recorded of a command line, and kept in memory as long as the command runs. */
export function recordedLine({ argv, shell }: Pick<ExecBody, 'argv' | 'shell'>): string[] {
  return (argv ?? ['sh', '-c', shell!])
    .slice(0, RECORDED_ARGUMENTS)
    .map((text) => ownText(text, RECORDED_TEXT));
}
