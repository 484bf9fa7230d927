import { networkInterfaces } from 'node:os';
import { addressKind } from '../../lib/address-kind.ts';
import { canonicalAddress } from '../../lib/canonical-address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { KnownAddress } from '../policy/decide.ts';

const REFRESH_MS = 5000;

/** Tells what an address is: its kind, and whether this machine has it. */
export function addressBook(
  clock: Clock,
  interfaces: typeof networkInterfaces = networkInterfaces,
): (address: string) => KnownAddress {
  let own = new Set<string>();
  let looked = -Infinity;
  return (address) => {
    if (clock.steady() - looked > REFRESH_MS) {
      looked = clock.steady();
      own = new Set(
        Object.values(interfaces()).flatMap((list = []) =>
          list.map((one) => canonicalAddress(one.address.split('%')[0]!) ?? one.address),
        ),
      );
    }
    const kind = addressKind(address);
    return { address, kind, own: kind !== 'loopback' && own.has(address) };
  };
}
