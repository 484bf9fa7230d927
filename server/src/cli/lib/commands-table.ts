import type { CommandInfo } from '@cay/sdk/client';
import { endText } from './end-text.ts';
import { colour, printable, table } from './output.ts';
import { formatAge, formatBytes } from './units.ts';

const WIDEST = 100;

/** The commands of a sandbox. */
export function commandsTable(commands: readonly CommandInfo[], now = Date.now()): string {
  const rows = commands.map(({ id, pid, end, outputBytes, argv, startedAtMs }) => [
    id,
    String(pid),
    end === undefined ? colour.green('running') : endText(end),
    formatAge(now - startedAtMs),
    formatBytes(outputBytes),
    printable(argv.join(' ')).slice(0, WIDEST),
  ]);
  return table(['COMMAND', 'PID', 'STATUS', 'AGE', 'OUTPUT', 'PROGRAM'], rows);
}
