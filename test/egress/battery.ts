/**
 * Attempts to get out that must fail, as data: a policy, what a program connects to and sends, and why it is
 * refused. Whatever carries connections runs all of them.
 */
import type { EgressReason, NetworkPolicy } from '@cay/sdk/protocol';

export interface Attack {
  readonly title: string;
  /** From the sandbox's own to the installation's. */
  readonly policies: readonly NetworkPolicy[];
  readonly to: { name?: string; address?: string; port: number };
  /** What the name resolves to outside. */
  readonly resolvesTo?: readonly string[];
  readonly send?: string;
  readonly reason: EgressReason;
}

const direct = (title: string, address: string, port = 80): Attack => ({
  title: `${title} (${address})`,
  policies: ['public'],
  to: { address, port },
  reason: 'address',
});
const rebound = (title: string, address: string): Attack => ({
  title: `a name that resolves to ${title} (${address})`,
  policies: ['public'],
  to: { name: 'rebound.example.org', port: 8443 },
  resolvesTo: [address],
  reason: 'address',
});

const SPECIAL: readonly (readonly [string, string])[] = [
  ['loopback', '127.0.0.1'],
  ['another address of loopback', '127.255.255.254'],
  ['loopback of IPv6', '::1'],
  ['a private address', '10.0.0.1'],
  ['a private address', '172.16.0.1'],
  ['a private address', '192.168.1.1'],
  ['a carrier-grade address', '100.64.0.1'],
  ['the metadata service', '169.254.169.254'],
  ['the metadata service over IPv6', 'fd00:ec2::254'],
  ['the metadata service of another cloud', '100.100.100.200'],
  ['a link-local address', 'fe80::1'],
  ['a unique local address', 'fd12:3456::1'],
  ['this network', '0.0.0.0'],
  ['the unspecified address', '::'],
  ['multicast', '224.0.0.1'],
  ['multicast of IPv6', 'ff02::1'],
  ['broadcast', '255.255.255.255'],
  ['a mapped address', '::ffff:10.0.0.1'],
  ['a mapped address in hexadecimal', '::ffff:7f00:1'],
  ['an address behind NAT64', '64:ff9b::a9fe:a9fe'],
  ['an address behind a local NAT64', '64:ff9b:1::a00:1'],
  ['an address in 6to4', '2002:a00:1::'],
  ['an address in Teredo', '2001:0:4136:e378:8000:63bf:f5ff:fffe'],
];

export const ATTACKS: readonly Attack[] = [
  ...SPECIAL.map(([title, address]) => direct(title, address)),
  ...SPECIAL.map(([title, address]) => rebound(title, address)),
  {
    title: 'a name that no rule has',
    policies: ['packages'],
    to: { name: 'evil.example.org', port: 4444 },
    reason: 'no_rule',
  },
  {
    title: 'a name that ends like one that a rule has',
    policies: [{ allow: ['*.example.org:22'] }],
    to: { name: 'evilexample.org', port: 22 },
    reason: 'no_rule',
  },
  {
    title: 'another port of a name',
    policies: ['packages'],
    to: { name: 'github.com', port: 25 },
    reason: 'no_rule',
  },
  {
    title: 'an address where only names are allowed',
    policies: ['packages'],
    to: { address: '8.8.8.8', port: 53 },
    reason: 'no_rule',
  },
  {
    title: 'a rule of its own beyond what the installation allows',
    policies: [{ allow: ['10.0.0.0/8', '169.254.169.254'] }, 'public'],
    to: { address: '169.254.169.254', port: 80 },
    reason: 'address',
  },
  {
    title: 'a policy wider than that of the project',
    policies: ['public', 'packages'],
    to: { name: 'evil.example.org', port: 22 },
    reason: 'bounded',
  },
  {
    title: 'a network that covers private ranges by the way',
    policies: [{ allow: ['0.0.0.0/0', '::/0'] }],
    to: { address: '10.0.0.1', port: 80 },
    reason: 'address',
  },
  {
    title: 'a name that is denied, under its address',
    policies: [{ base: 'public', deny: ['8.8.8.0/24'] }],
    to: { name: 'dns.example.org', port: 53 },
    resolvesTo: ['8.8.8.8'],
    reason: 'deny_rule',
  },
];
