import { BlockList, isIP } from 'node:net';

/** What an IP address reaches, judged by its number. */
export type AddressKind =
  /** The internet. */
  | 'public'
  /** This machine. */
  | 'loopback'
  /** A private network. */
  | 'private'
  /** Link-local: where clouds serve the credentials of their machines. */
  | 'link_local'
  /** No one host: unspecified, multicast, broadcast, reserved. */
  | 'other';

const RANGES: [AddressKind, string, number][] = [
  ['loopback', '127.0.0.0', 8],
  ['loopback', '::1', 128],
  ['link_local', '169.254.0.0', 16],
  ['link_local', 'fe80::', 10],
  // Metadata services of two clouds that are not link-local.
  ['link_local', 'fd00:ec2::254', 128],
  ['link_local', '100.100.100.200', 32],
  ['private', '10.0.0.0', 8],
  ['private', '172.16.0.0', 12],
  ['private', '192.168.0.0', 16],
  ['private', '100.64.0.0', 10],
  ['private', '198.18.0.0', 15],
  ['private', 'fc00::', 7],
  ['private', 'fec0::', 10],
  ['other', '0.0.0.0', 8],
  ['other', '192.0.0.0', 24],
  ['other', '192.88.99.0', 24],
  ['other', '192.0.2.0', 24],
  ['other', '198.51.100.0', 24],
  ['other', '203.0.113.0', 24],
  ['other', '224.0.0.0', 3],
  ['other', '::', 128],
  ['other', '100::', 64],
  // Assignments of protocols, Teredo among them, which hides an IPv4 address.
  ['other', '2001::', 23],
  ['other', '2001:db8::', 32],
  ['other', '3fff::', 20],
  ['private', '64:ff9b:1::', 48],
  ['other', 'ff00::', 8],
];

/** IPv6 prefixes that embed an IPv4 address, and its offset in bytes. */
const EMBEDDED: [string, number, number][] = [
  ['::ffff:0:0', 96, 12],
  ['::', 96, 12],
  ['64:ff9b::', 96, 12],
  ['2002::', 16, 2],
];

/** All that is unicast on the internet. What is outside and not listed above is not assigned. */
const GLOBAL_V6 = listOf('2000::', 3);

const lists = RANGES.map(([kind, network, bits]) => ({ kind, bits, list: listOf(network, bits) }));
const embedded = EMBEDDED.map(([network, bits, at]) => ({ list: listOf(network, bits), at }));

function listOf(network: string, bits: number): BlockList {
  const list = new BlockList();
  list.addSubnet(network, bits, isIP(network) === 4 ? 'ipv4' : 'ipv6');
  return list;
}

export function addressKind(address: string): AddressKind {
  return specialRange(address)?.kind ?? 'public';
}

/**
 * The range of a special kind that an address is in, with the bits of its prefix. Nothing if it is public.
 */
export function specialRange(address: string): { kind: AddressKind; bits: number } | undefined {
  const family = isIP(address);
  if (family === 0) return { kind: 'other', bits: 128 };
  if (family === 4) return lists.find(({ list }) => list.check(address, 'ipv4'));
  const plain = address.split('%')[0]!;
  const known = lists.find(({ list }) => list.check(plain, 'ipv6'));
  if (known) return known;
  const inner = embedded.find(({ list }) => list.check(plain, 'ipv6'));
  if (inner) {
    const within = specialRange(
      addressBytes(plain)
        .subarray(inner.at, inner.at + 4)
        .join('.'),
    );
    return within && { kind: within.kind, bits: 128 };
  }
  return GLOBAL_V6.check(plain, 'ipv6') ? undefined : { kind: 'other', bits: 128 };
}

/** The bytes of an address, 4 or 16. Preconditions: it is an address, without a zone. */
export function addressBytes(address: string): Uint8Array {
  if (isIP(address) === 4) return Uint8Array.from(address.split('.').map(Number));
  // The URL parser accepts every notation and normalises it to groups.
  const text = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = '', tail] = text.split('::');
  const groups = (part: string) =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const [first, last] = [groups(head), tail === undefined ? [] : groups(tail)];
  const all = [...first, ...Array.from({ length: 8 - first.length - last.length }, () => 0), ...last];
  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 255]));
}
