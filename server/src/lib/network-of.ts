import { isIPv6 } from 'node:net';

/**
 * The network that an address belongs to: an IPv4 address itself, or the /64 of an IPv6 address, of which a
 * single machine has as many as it likes.
 */
export function networkOf(address: string | undefined): string {
  const plain = (address ?? '').replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '');
  if (!isIPv6(plain)) return plain;
  const [head = '', tail] = plain.toLowerCase().split('::');
  const groups = (text: string) => (text === '' ? [] : text.split(':'));
  const first = groups(head);
  const last = tail === undefined ? [] : groups(tail);
  // An embedded IPv4 address takes the room of two groups.
  const length = first.length + last.length + (plain.includes('.') ? 1 : 0);
  const all = [
    ...first,
    ...Array.from({ length: tail === undefined ? 0 : Math.max(0, 8 - length) }, () => '0'),
    ...last,
  ];
  return `${all
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ''))
    .join(':')}::/64`;
}
