import type { CommandEnd } from '@cay/sdk/client';
import { printable } from './output.ts';

/** How a command ended, for people. */
export function endText(end: CommandEnd): string {
  if (end.kind === 'exited') return `exited ${end.exitCode}`;
  if (end.kind === 'signalled') return `ended by ${printable(end.signal)}`;
  if (end.kind === 'timed_out') return 'ran into its timeout';
  if (end.kind === 'oom_killed') return 'ran out of memory';
  return `lost: ${printable(end.reason)}`;
}
