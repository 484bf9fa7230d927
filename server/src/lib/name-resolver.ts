/**
 * Finds the addresses of a name, once for each connection.
 *
 * The names are chosen by tenants and by programs in sandboxes, so this does not use the system's resolver:
 * that has two threads for the whole server, and takes one for as long as a name server is silent. Names in
 * `/etc/hosts` are honoured. Search domains are not: a name is what it says.
 */
import { Resolver as DnsResolver } from 'node:dns/promises';
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import type { Clock } from './clock.ts';
import { canonicalAddress } from './canonical-address.ts';

export interface Resolver {
  /**
   * Addresses, IPv4 first, at most `MAX_ADDRESSES`. Rejects if there are none, and beyond a number of names
   * that are looked up at once for the same `asker`, such as a project.
   */
  resolve(name: string, asker?: unknown): Promise<readonly string[]>;
}

export const MAX_ADDRESSES = 8;
const MAX_CACHED = 10_000;
const MAX_UNDER_WAY = 4096;
const MAX_OF_ONE = 256;
const MAX_TTL_MS = 60_000;
const FAILED_TTL_MS = 2000;

export interface ResolverOptions {
  readonly clock: Clock;
  /** Addresses of name servers, `1.1.1.1` or `1.1.1.1:53`. The system's if absent. */
  readonly servers?: readonly string[] | undefined;
  readonly timeoutMs?: number | undefined;
  readonly hostsFile?: string | undefined;
}

interface Cached {
  readonly answer: Promise<readonly string[]>;
  until: number;
}

export function nameResolver({
  clock,
  servers,
  timeoutMs = 2000,
  hostsFile = '/etc/hosts',
}: ResolverOptions): Resolver {
  const resolver = new DnsResolver({ timeout: timeoutMs, tries: 2 });
  if (servers) resolver.setServers(servers);
  const hosts = hostsReader(hostsFile, clock);
  const cache = new Map<string, Cached>();
  let underWay = 0;
  /** By who asked. */
  const shares = new Map<unknown, number>();

  async function ask(name: string, asker: unknown, entry: { until: number }): Promise<readonly string[]> {
    underWay++;
    shares.set(asker, (shares.get(asker) ?? 0) + 1);
    try {
      const [four, six] = await Promise.allSettled([
        resolver.resolve4(name, { ttl: true }),
        resolver.resolve6(name, { ttl: true }),
      ]);
      const records = [four, six].flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
      if (records.length === 0) throw four.status === 'rejected' ? four.reason : new Error('no address');
      const ttl = Math.min(...records.map((record) => record.ttl * 1000), MAX_TTL_MS);
      entry.until = clock.steady() + Math.max(ttl, 1000);
      return clean(records.map((record) => record.address));
    } catch (error) {
      entry.until = clock.steady() + FAILED_TTL_MS;
      throw error;
    } finally {
      underWay--;
      const left = shares.get(asker)! - 1;
      if (left === 0) shares.delete(asker);
      else shares.set(asker, left);
    }
  }

  return {
    async resolve(name, asker) {
      const fixed = hosts(name);
      if (fixed) return fixed;
      const known = cache.get(name);
      if (known && known.until > clock.steady()) return known.answer;
      if (underWay >= MAX_UNDER_WAY || (shares.get(asker) ?? 0) >= MAX_OF_ONE)
        throw new Error('too many names are being looked up');
      const entry: Cached = { answer: Promise.resolve([]), until: Infinity };
      const answer = ask(name, asker, entry);
      cache.set(name, Object.assign(entry, { answer }));
      if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value!);
      return answer;
    },
  };
}

function clean(addresses: readonly string[]): string[] {
  const all = [...new Set(addresses.map(canonicalAddress).filter((one) => one !== undefined))];
  const four = all.filter((one) => isIP(one) === 4);
  return [...four, ...all.filter((one) => isIP(one) === 6)].slice(0, MAX_ADDRESSES);
}

/** The names of a hosts file, read again when it has changed. */
function hostsReader(file: string, clock: Clock): (name: string) => readonly string[] | undefined {
  let names = new Map<string, string[]>();
  let changed = -1;
  let looked = -Infinity;
  return (name) => {
    const now = clock.steady();
    if (now - looked > 5000) {
      looked = now;
      try {
        const { mtimeMs } = statSync(file);
        if (mtimeMs !== changed) names = parseHosts(readFileSync(file, 'utf8'));
        changed = mtimeMs;
      } catch {
        // No file means no names.
        names = new Map();
      }
    }
    return names.get(name);
  };
}

function parseHosts(text: string): Map<string, string[]> {
  const names = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address = '', ...aliases] = line.replace(/#.*/, '').trim().split(/\s+/);
    const canonical = canonicalAddress(address);
    if (canonical === undefined) continue;
    for (const alias of aliases) {
      const name = alias.toLowerCase().replace(/\.$/, '');
      names.set(name, clean([...(names.get(name) ?? []), canonical]));
    }
  }
  return names;
}
