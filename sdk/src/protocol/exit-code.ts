import type { CommandEnd } from './command.ts';
import { SIGNALS } from './signal.ts';

/** The exit code that a shell would show for this end. */
export function shellExitCode(end: CommandEnd): number {
  switch (end.kind) {
    case 'exited':
      return end.exitCode;
    case 'signalled':
      return 128 + (SIGNALS[end.signal as keyof typeof SIGNALS] ?? 0);
    case 'timed_out':
      return 124;
    case 'oom_killed':
      return 137;
    case 'lost':
      return 125;
  }
}
