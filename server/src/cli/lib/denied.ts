/** Tells what the network policy denied, and how to allow it. */
import type { EgressDenial, Sandbox } from '@cay/sdk/client';
import { colour, printable } from './output.ts';

/** On standard error, beside what the command wrote there itself. */
export function printDenied(denied: readonly EgressDenial[], { info: { id, name } }: Sandbox): void {
  for (const { name: host, address, port, rule } of denied) {
    const target = printable(`${host ?? address}:${port}`);
    const hint = rule === null ? '' : `; allow it with: cay net allow ${name ?? id} ${printable(rule)}`;
    process.stderr.write(`${colour.yellow('denied:')} ${target}${hint}\n`);
  }
}
