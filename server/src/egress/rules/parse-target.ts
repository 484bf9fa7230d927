/**
 * The grammar of targets, which API, command line and SDK share:
 *
 *     target  = [ scheme "://" ] host [ ":" ports ] [ path ]  |  "udp:" host ":" ports
 *     host    = name | "*." name | "*" | address | address "/" bits | preset
 *     ports   = "*" | range *( "," range )
 *     path    = "/" …                         names alone; it covers what is below it
 *
 * An IPv6 address with ports is in brackets, `[fd00::/8]:443`. A scheme stands for its port. `host:53/udp` is
 * read as `udp:host:53`, and `host:53/udp/` as a path. Whatever can be read in two ways is refused with what
 * to write. `printTarget` writes the canonical form, which parses to the same target.
 */
import { CayError } from '@cay/sdk/protocol';
import { canonicalAddress } from '../../lib/canonical-address.ts';
import { isCanonicalNetwork, networkAddress } from './network.ts';
import { parseName } from './parse-name.ts';
import { ANY_PORT, parsePorts, type Ports, printPorts, samePorts, WEB_PORTS } from './ports.ts';

export type Host =
  | { readonly kind: 'name'; readonly name: string }
  /** Every name below this one. */
  | { readonly kind: 'below'; readonly name: string }
  | { readonly kind: 'any' }
  | { readonly kind: 'addresses'; readonly address: string; readonly bits: number }
  | { readonly kind: 'preset'; readonly preset: string };

export interface Target {
  readonly host: Host;
  readonly ports: Ports;
  readonly path?: string;
  /** Whether it is about datagrams, and not about connections. */
  readonly udp?: true;
}

export const MAX_TARGET = 1024;
/** Each is a socket in the sandbox. */
export const MAX_UDP_PORTS = 16;
const PRESET = /^[a-z][a-z0-9-]{0,31}$/;
const SCHEME_PORTS: Readonly<Record<string, number>> = {
  http: 80,
  https: 443,
  ws: 80,
  wss: 443,
  ssh: 22,
  git: 9418,
  postgres: 5432,
  postgresql: 5432,
  mysql: 3306,
  redis: 6379,
  mongodb: 27_017,
  amqp: 5672,
  amqps: 5671,
};
const WEB_SCHEMES = ['http', 'https', 'ws', 'wss'];

function refuse(text: string, problem: string, write?: string): never {
  throw new CayError('invalid_argument', `Cannot read the network rule "${text.slice(0, 200)}": ${problem}`, {
    ...(write !== undefined && { hint: `write ${write}` }),
  });
}

export function parseTarget(text: string): Target {
  if (text.length > MAX_TARGET) refuse(text, `it has more than ${MAX_TARGET} characters`);
  const trimmed = text.trim();
  if (trimmed === '') refuse(text, 'it is empty', 'a name such as "example.org"');
  if (/[\s\p{Cc}\p{Cf}]/u.test(trimmed)) refuse(text, 'it has spaces or invisible characters');
  const udp = /^udp:(?:\/\/)?|(?<=:[\d,-]+)\/udp$/i.exec(trimmed)?.[0];
  if (udp !== undefined) return parseUdp(text, trimmed.replace(udp, ''));
  const [, scheme, rest = ''] = /^(?:([A-Za-z][A-Za-z0-9+.-]*):\/\/)?(.*)$/s.exec(trimmed)!;
  const kind = scheme?.toLowerCase();
  if (kind !== undefined && SCHEME_PORTS[kind] === undefined)
    refuse(text, `the scheme "${kind}" has no known port`, 'the name and its port, as "example.org:21"');
  if (/[?#]/.test(rest)) refuse(text, 'a rule has neither query nor fragment');
  if (rest.includes('\\')) refuse(text, 'it has a backslash');
  if (kind === undefined) {
    const addresses = parseAddresses(text, rest);
    if (addresses !== undefined) return addresses;
  }
  return parseNamed(text, rest, kind);
}

function parseUdp(text: string, rest: string): Target {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(rest) || /^udp:|\/udp$/i.test(rest))
    refuse(text, 'it has two protocols', '"udp:", the name and its port, as "udp:example.org:53"');
  const example = 'the port, as "udp:example.org:53" or "udp:192.0.2.53:53"';
  const { host, ports, path } = parseTarget(rest);
  if (host.kind === 'preset') refuse(text, 'a preset has no rules for UDP', example);
  if (path !== undefined) refuse(text, 'UDP has no paths', example);
  if (!/:[\d,-]+$/.test(rest) || (host.kind === 'addresses' && samePorts(ports, ANY_PORT)))
    refuse(text, 'UDP needs ports by their numbers', example);
  if (ports.reduce((sum, [low, high]) => sum + high - low + 1, 0) > MAX_UDP_PORTS)
    refuse(text, `a rule for UDP has ${MAX_UDP_PORTS} ports at most`, example);
  return { host, ports, udp: true };
}

function parseNamed(text: string, rest: string, scheme: string | undefined): Target {
  const slash = rest.indexOf('/');
  const authority = slash === -1 ? rest : rest.slice(0, slash);
  if (authority.includes('@'))
    refuse(text, 'it has credentials in it', 'the name without what is before the @');
  if (authority === '') refuse(text, 'there is no name in it');
  const addresses = scheme === undefined ? undefined : parseAddresses(text, authority);
  if (addresses !== undefined) {
    if (slash !== -1 && rest.slice(slash) !== '/') refuse(text, 'an address has no path', `"${authority}"`);
    if (authority.endsWith('*')) refuse(text, 'an address with a scheme has one port');
    return withScheme(text, addresses, scheme!, addresses.ports !== ANY_PORT);
  }
  const colon = authority.indexOf(':');
  const hostText = colon === -1 ? authority : authority.slice(0, colon);
  const ports = colon === -1 ? undefined : parsePorts(authority.slice(colon + 1));
  if (typeof ports === 'string') refuse(text, ports);
  const host = parseHost(text, hostText);
  if (host.kind === 'preset') {
    if (scheme !== undefined || ports !== undefined || slash !== -1)
      refuse(text, `"${hostText}" has no dot, so it is no full name, and a preset has no ports`);
    return { host, ports: ANY_PORT };
  }
  const path = slash === -1 ? undefined : parsePath(text, rest.slice(slash));
  if (path !== undefined && scheme !== undefined && !WEB_SCHEMES.includes(scheme))
    refuse(
      text,
      `"${scheme}" has no paths that can be seen`,
      `"${printTarget({ host, ports: ports ?? WEB_PORTS })}"`,
    );
  const target: Target = { host, ports: ports ?? WEB_PORTS, ...(path !== undefined && { path }) };
  return scheme === undefined ? target : withScheme(text, target, scheme, ports !== undefined);
}

/** A scheme gives the port. One that contradicts a scheme of HTTP is what people mean: `http://host:8080`. */
function withScheme(text: string, target: Target, scheme: string, hasPorts: boolean): Target {
  const own = SCHEME_PORTS[scheme]!;
  if (!hasPorts) return { ...target, ports: [[own, own]] };
  if (target.ports.length !== 1 || target.ports[0]![0] !== target.ports[0]![1])
    refuse(text, 'an address with a scheme has one port', `"${printTarget(target)}"`);
  return target;
}

function parseHost(text: string, host: string): Host {
  if (host === '*') return { kind: 'any' };
  if (host.startsWith('*.')) {
    const below = host.slice(2);
    if (below.includes('*')) refuse(text, 'there is more than one *', '"*.example.org"');
    // A glob below a top-level domain has one label, which is no name by itself.
    const parsed = /^[a-z]{2,63}\.?$/i.test(below)
      ? ({ ok: true, name: below.replace(/\.$/, '').toLowerCase() } as const)
      : parseName(below);
    if (!parsed.ok) refuse(text, parsed.problem, parsed.write && `"*.${parsed.write}"`);
    return { kind: 'below', name: parsed.name };
  }
  if (host.includes('*'))
    refuse(text, 'a * stands for whole labels at the beginning of a name', '"*.example.org", or "*" for all');
  if (PRESET.test(host.toLowerCase())) {
    if (host.toLowerCase() === 'localhost')
      refuse(text, '"localhost" is the sandbox itself', 'the address of the machine that is meant');
    return { kind: 'preset', preset: host.toLowerCase() };
  }
  const parsed = parseName(host);
  if (!parsed.ok) refuse(text, parsed.problem, parsed.write && `"${parsed.write}"`);
  return { kind: 'name', name: parsed.name };
}

function parsePath(text: string, path: string): string | undefined {
  // eslint-disable-next-line no-control-regex
  if (/[^\x21-\x7e]/.test(path)) refuse(text, 'its path has characters that URLs encode');
  if (path.includes('%'))
    refuse(text, 'its path has an encoded character', 'the path as it is after decoding');
  if (/\/\.{1,2}(\/|$)/.test(path)) refuse(text, 'its path has "." or ".." in it', 'the path that is meant');
  if (path.includes('//')) refuse(text, 'its path has an empty segment');
  const plain = path.replace(/\/(\*\*)?$/, '');
  if (plain.includes('**')) refuse(text, 'a path covers what is below it, so "**" says nothing more');
  return plain === '' ? undefined : plain;
}

/** Addresses and networks. Nothing if it is none, and so may be a name. */
function parseAddresses(text: string, rest: string): Target | undefined {
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/s.exec(rest);
  if (bracketed) return addressesOf(text, bracketed[1]!, bracketed[2], true);
  if (rest.startsWith('['))
    refuse(text, 'the bracket is not closed, or something other than ports follows it');
  if (/^[0-9a-f:.%]*:[0-9a-f:.]*:[^/]*(\/.*)?$/i.test(rest)) return addressesOf(text, rest, undefined, true);
  const v4 = /^(\d+\.\d+\.\d+\.\d+)(\/[^:]*)?(?::(.*))?$/s.exec(rest);
  return v4 ? addressesOf(text, v4[1]! + (v4[2] ?? ''), v4[3], false) : undefined;
}

function addressesOf(text: string, network: string, portText: string | undefined, six: boolean): Target {
  const slash = network.indexOf('/');
  const addressText = slash === -1 ? network : network.slice(0, slash);
  if (addressText.includes('%')) refuse(text, 'an address with a zone is of one machine only');
  const address = canonicalAddress(addressText);
  if (address === undefined)
    refuse(
      text,
      `"${addressText}" is no IPv${six ? 6 : 4} address in its usual form`,
      six
        ? 'the port behind brackets, as "[fd00::1]:443"'
        : 'four numbers from 0 to 255 without leading zeros',
    );
  const most = address.includes(':') ? 128 : 32;
  if (six && most === 32 && slash !== -1)
    refuse(text, 'it is a network of IPv4 addresses in IPv6 form', 'the IPv4 network');
  const bitsText = slash === -1 ? String(most) : network.slice(slash + 1);
  if (!/^(0|[1-9]\d{0,2})$/.test(bitsText) || Number(bitsText) > most)
    refuse(text, `"/${bitsText}" is no length of a prefix of ${address}`);
  const host = { kind: 'addresses', address, bits: Number(bitsText) } as const;
  if (!isCanonicalNetwork(host))
    refuse(
      text,
      `${address}/${host.bits} is an address and a network at once`,
      `"${networkAddress(address, host.bits)}/${host.bits}" for the network or "${address}" for the address`,
    );
  const ports = portText === undefined ? ANY_PORT : parsePorts(portText);
  if (typeof ports === 'string') refuse(text, ports);
  return { host, ports };
}

export function printTarget({ host, ports, path = '', udp }: Target): string {
  if (host.kind === 'preset') return host.preset;
  const before = udp ? 'udp:' : '';
  if (host.kind === 'addresses') {
    const single = host.bits === (host.address.includes(':') ? 128 : 32);
    const plain = single ? host.address : `${host.address}/${host.bits}`;
    if (samePorts(ports, ANY_PORT)) return plain;
    return `${before}${host.address.includes(':') ? `[${plain}]` : plain}:${printPorts(ports)}`;
  }
  const name = host.kind === 'any' ? '*' : host.kind === 'below' ? `*.${host.name}` : host.name;
  if (samePorts(ports, WEB_PORTS) && !udp) return `${name}${path}`;
  // Behind ports `/udp` says that the rule is about datagrams.
  const plainPath = /^\/udp$/i.test(path) ? `${path}/` : path;
  return `${before}${name}:${printPorts(ports)}${plainPath}`;
}
