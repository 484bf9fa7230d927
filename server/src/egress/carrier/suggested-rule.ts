import { printTarget } from '../rules/parse-target.ts';
import type { ConnectionTarget } from './addresses.ts';

/** The narrowest rule that would allow this target. */
export function suggestedRule({ name, address, port }: ConnectionTarget, udp?: true): string {
  const host =
    name === undefined
      ? ({ kind: 'addresses', address: address!, bits: address!.includes(':') ? 128 : 32 } as const)
      : ({ kind: 'name', name } as const);
  return printTarget({ host, ports: [[port, port]], ...(udp && { udp }) });
}
