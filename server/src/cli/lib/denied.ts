/** Tells what the network policy denied, and how to allow it. */
import type { EgressDenial, Sandbox } from '@cay/sdk/client';
import { colour, printable } from './output.ts';

/** On standard error, beside what the command wrote there itself. */
export function printDenied(denied: readonly EgressDenial[], { info: { id, name } }: Sandbox): void {
  for (const { name: host, address, port, reason, rule } of denied) {
    const target = printable(`${host ?? address}:${port}`);
    // A rule for the name does not help: the installation has to allow the address.
    const hint =
      reason === 'address'
        ? '; its address is not a public one, which only a rule of the operator allows: cay up --max-network'
        : rule === null
          ? ''
          : `; allow it with: cay net allow ${name ?? id} ${printable(rule)}`;
    process.stderr.write(`${colour.yellow('denied:')} ${target}${hint}\n`);
  }
}
