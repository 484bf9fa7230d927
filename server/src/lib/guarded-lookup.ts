/**
 * How the server looks up hosts that tenants name, for connections of its own: to webhooks, registries and
 * buckets. Addresses that may not be reached are left out when the connection is made, so that no name can
 * change in between.
 */
import { lookup as systemLookup, type LookupAddress } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { promisify } from 'node:util';
import { openClock } from './clock.ts';
import { nameResolver, type Resolver } from './name-resolver.ts';
import { Semaphore } from './semaphore.ts';

export interface GuardedLookupOptions {
  isAllowed(address: string): boolean;
  /** What a name without an allowed address is refused with. */
  refusal(name: string, address: string): Error;
  /**
   * Whether names that no name server knows are looked up as the system does, with its search domains: where
   * private hosts may be reached.
   */
  system: boolean;
}

const UNKNOWN = new Set(['ENOTFOUND', 'ENODATA', 'ECONNREFUSED']);
let shared: Resolver | undefined;
/** The other of the system's two threads for names is left to the server itself. */
const systemTurns = new Semaphore(1);

export function guardedLookup({ isAllowed, refusal, system }: GuardedLookupOptions): LookupFunction {
  async function addressesOf(name: string): Promise<readonly LookupAddress[]> {
    // A name that ends with a dot is the same without search domains.
    const plain = name.toLowerCase().replace(/\.$/, '');
    try {
      const found = await (shared ??= nameResolver({ clock: openClock() })).resolve(plain);
      return found.map((address) => ({ address, family: isIP(address) }));
    } catch (error) {
      if (!system || !UNKNOWN.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
      return systemTurns.run(() => promisify(systemLookup)(name, { all: true }));
    }
  }

  return (name, { all, family }, callback) => {
    const wanted = family === 4 || family === 'IPv4' ? 4 : family === 6 || family === 'IPv6' ? 6 : 0;
    addressesOf(name).then(
      (found) => {
        const allowed = found.filter(({ address }) => isAllowed(address));
        const fitting = allowed.filter((one) => wanted === 0 || one.family === wanted);
        const [first] = fitting;
        if (first === undefined) callback(refusal(name, found[0]?.address ?? ''), '', 0);
        else if (all) callback(null, fitting);
        else callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, '', 0),
    );
  };
}
