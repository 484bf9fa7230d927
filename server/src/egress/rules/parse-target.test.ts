import { isCayError } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { networkAddress } from './network.ts';
import { parseTarget, printTarget, type Target } from './parse-target.ts';
import { ANY_PORT, mergePorts, WEB_PORTS } from './ports.ts';

const label = fc
  .stringMatching(/^[a-z0-9]([a-z0-9_-]{0,20}[a-z0-9])?$/)
  .filter((text) => !text.includes('xn--'));
const name = fc
  .tuple(fc.array(label, { minLength: 1, maxLength: 4 }), fc.stringMatching(/^[a-z]{2,10}$/))
  .map(([labels, top]) => [...labels, top].join('.'))
  .filter((text) => !/(^|\.)(localhost|local|onion|invalid)$|(in-addr|ip6)\.arpa$/.test(text));
const port = fc.integer({ min: 1, max: 65_535 });
const ports = fc.oneof(
  fc.constant(ANY_PORT),
  fc.constant(WEB_PORTS),
  fc
    .array(
      fc.tuple(port, port).map(([one, other]) => [Math.min(one, other), Math.max(one, other)] as const),
      { minLength: 1, maxLength: 8 },
    )
    .map(mergePorts),
);
const path = fc.option(
  fc
    .array(fc.stringMatching(/^[A-Za-z0-9_~:@!$&'()+,;=*-]{1,12}$/), { minLength: 1, maxLength: 4 })
    .map((segments) => `/${segments.join('/')}`)
    .filter((text) => !text.includes('**')),
  { nil: undefined },
);
const addresses = fc
  .oneof(
    fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })),
    fc.tuple(
      fc.ipV6().filter((text) => !text.includes('.')),
      fc.integer({ min: 0, max: 128 }),
    ),
  )
  .map(([address, bits]) => ({ kind: 'addresses' as const, address: networkAddress(address, bits), bits }));
const target: fc.Arbitrary<Target> = fc.oneof(
  fc.record({
    host: fc.record({ kind: fc.constantFrom('name' as const, 'below' as const), name }),
    ports,
    path,
  }),
  fc.record({ host: fc.constant({ kind: 'any' as const }), ports, path }),
  fc.record({ host: addresses, ports }),
  fc.record({
    host: fc.oneof(fc.record({ kind: fc.constantFrom('name' as const, 'below' as const), name }), addresses),
    ports: fc
      .array(port, { minLength: 1, maxLength: 8 })
      .map((all) => mergePorts(all.map((one) => [one, one]))),
    udp: fc.constant(true as const),
  }),
);
const bare = ({ path: own, ...rest }: Target) => ({ ...rest, ...(own !== undefined && { path: own }) });

describe('the grammar of targets', () => {
  it('prints what parses to the same target', () => {
    fc.assert(
      fc.property(target, (one) => {
        expect(parseTarget(printTarget(one))).toEqual(bare(one));
      }),
    );
  });

  it('normalises once and for all', () => {
    fc.assert(
      fc.property(target, fc.boolean(), (one, upper) => {
        const text = printTarget({ ...one, path: undefined });
        const once = printTarget(parseTarget(upper ? text.toUpperCase() : text));
        expect(once).toBe(text);
        expect(printTarget(parseTarget(once))).toBe(once);
      }),
    );
  });

  it('reads or refuses anything, and what it reads is canonical', () => {
    const pieces = fc.array(
      fc.constantFrom(
        'a',
        'Example',
        '.',
        '*',
        ':',
        '/',
        '443',
        '0',
        '127',
        '1',
        '[',
        ']',
        '::',
        '%',
        '@',
        'xn--',
        'é',
        'а',
        '-',
        'https://',
        'https://a.b',
        ':443',
        'udp:',
        '/udp',
        '?',
        '\\',
        '0x7f',
        ' ',
        '\0',
        '。',
        ',',
      ),
      { maxLength: 12 },
    );
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ maxLength: 60, unit: 'binary' }),
          pieces.map((all) => all.join('')),
        ),
        (text) => {
          let parsed: Target;
          try {
            parsed = parseTarget(text);
          } catch (error) {
            expect(isCayError(error, 'invalid_argument')).toBe(true);
            return;
          }
          expect(parseTarget(printTarget(parsed))).toEqual(parsed);
        },
      ),
      { numRuns: 20_000 },
    );
  });

  it.each([
    ['https://Example.com:443/x', 'example.com:443/x'],
    ['https://Example.com', 'example.com:443'],
    ['https://example.com/udp', 'example.com:443/udp/'],
    ['https://example.com/UDP/', 'example.com:443/UDP/'],
    ['example.com/udp', 'example.com/udp'],
    ['example.com:443/udp/a', 'example.com:443/udp/a'],
    ['http://example.com/', 'example.com:80'],
    ['http://example.com:8080', 'example.com:8080'],
    ['Example.COM.', 'example.com'],
    ['example.com:80,443', 'example.com'],
    ['example.com:443,80', 'example.com'],
    ['example.com:1-65535', 'example.com:*'],
    ['example.com:443-444,445', 'example.com:443-445'],
    ['*.Example.com', '*.example.com'],
    ['*', '*'],
    ['*.com', '*.com'],
    ['bücher.example', 'xn--bcher-kva.example'],
    ['BÜCHER.example', 'xn--bcher-kva.example'],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example'],
    ['例え.テスト', 'xn--r8jz45g.xn--zckzah'],
    ['10.0.0.0/8', '10.0.0.0/8'],
    ['10.1.2.3/32', '10.1.2.3'],
    ['10.1.2.3:5432', '10.1.2.3:5432'],
    ['10.0.0.0/8:5432', '10.0.0.0/8:5432'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['FD00::/8', 'fd00::/8'],
    ['[fd00::1]:443', '[fd00::1]:443'],
    ['[FD00:0:0::1]', 'fd00::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['https://[fd00::1]:8443', '[fd00::1]:8443'],
    ['https://10.0.0.1/', '10.0.0.1:443'],
    ['ssh://github.com', 'github.com:22'],
    ['postgres://db.example.org', 'db.example.org:5432'],
    ['example.org/a/b/', 'example.org/a/b'],
    ['example.org/a/**', 'example.org/a'],
    ['example.org/repos/*/issues', 'example.org/repos/*/issues'],
    ['npm', 'npm'],
    ['NPM', 'npm'],
    ['_dmarc.example.org', '_dmarc.example.org'],
    ['  example.org\n', 'example.org'],
  ])('reads %s as %s', (given, canonical) => {
    expect(printTarget(parseTarget(given))).toBe(canonical);
  });

  it.each([
    ['', 'empty'],
    ['   ', 'empty'],
    ['user:pw@example.com', 'credentials'],
    ['https://user@example.com/', 'credentials'],
    ['example.com:0', 'between 1 and 65535'],
    ['example.com:65536', 'between 1 and 65535'],
    ['example.com:080', 'begins with 0'],
    ['example.com:', 'no port after the colon'],
    ['example.com:http', 'is no port'],
    ['example.com:90-80', 'ends before it begins'],
    ['example.com:-1', 'is no port'],
    ['a..example.com', 'empty label'],
    ['example.com..', 'empty label'],
    ['.example.com', 'empty label'],
    ['*example.com', 'whole labels'],
    ['a.*.example.com', 'whole labels'],
    ['example.*', 'whole labels'],
    ['*.*.example.com', 'more than one *'],
    ['**.example.com', 'whole labels'],
    ['127.1', 'can be read as an IPv4 address'],
    ['0x7f.0.0.1', 'can be read as an IPv4 address'],
    ['0177.0.0.1', 'no IPv4 address in its usual form'],
    ['2130706433', 'can be read as an IPv4 address'],
    ['https://2130706433/', 'can be read as an IPv4 address'],
    ['1.2.3.4.', 'can be read as an IPv4 address'],
    ['1.2.3.4.5', 'can be read as an IPv4 address'],
    ['256.1.1.1', 'no IPv4 address'],
    ['10.0.0.1/8', 'an address and a network at once'],
    ['10.0.0.0/33', 'no length of a prefix'],
    ['10.0.0.0/08', 'no length of a prefix'],
    ['fe80::1%eth0', 'zone'],
    ['[fe80::1%25eth0]:80', 'zone'],
    ['[fd00::1', 'bracket'],
    ['[fd00::1]x', 'bracket'],
    ['fd00::1::2', 'no IPv6 address'],
    ['::ffff:10.0.0.0/104', 'IPv4 addresses in IPv6 form'],
    ['ｅxample.com', 'stand for others'],
    ['example。com', 'stand for others'],
    ['pаypal.com', 'look alike'],
    ['xn--pypal-4ve.com', 'look alike'],
    ['xn--a.com', 'no valid internationalised name'],
    ['exa mple.com', 'spaces'],
    ['example\u200b.com', 'invisible'],
    ['example.com\\@evil.com', 'backslash'],
    ['example.com?x=1', 'query'],
    ['example.com#x', 'query'],
    ['gopher://example.com', 'no known port'],
    ['ssh://github.com/x', 'no paths'],
    ['localhost', 'the sandbox itself'],
    ['x.localhost', 'not on the internet'],
    ['example.com/%2e%2e/x', 'encoded'],
    ['example.com/../x', '".."'],
    ['example.com//x', 'empty segment'],
    ['exa%6dple.com', 'no label'],
    ['-a.example.com', 'no label'],
    ['npm:443', 'a preset has no ports'],
    ['udp:dns.example.org', 'UDP needs ports'],
    ['udp:dns.example.org:*', 'UDP needs ports'],
    ['udp:192.0.2.53', 'UDP needs ports'],
    ['udp:fd00::53', 'UDP needs ports'],
    ['udp:dns.example.org:1-17', 'has 16 ports at most'],
    ['udp:dns.example.org:1-65535', 'has 16 ports at most'],
    ['udp:dns.example.org:53/path', 'UDP has no paths'],
    ['udp:npm', 'a preset has no rules for UDP'],
    ['udp:https://dns.example.org:53', 'two protocols'],
    ['udp:udp:dns.example.org:53', 'two protocols'],
    ['udp:dns.example.org:53/udp', 'two protocols'],
    ['https://intranet/', 'no dot'],
    [`${'a'.repeat(64)}.example.com`, 'more than 63'],
    [`${'a.'.repeat(130)}com`, 'more than 253'],
    ['a'.repeat(2000), 'more than 1024'],
  ])('refuses %s', (given, why) => {
    expect(() => parseTarget(given)).toThrow(why);
  });

  it('says what to write instead', () => {
    const hintOf = (text: string) => {
      try {
        parseTarget(text);
      } catch (error) {
        return isCayError(error) ? error.hint : undefined;
      }
      return undefined;
    };
    expect(hintOf('udp:dns.example.org')).toContain('"udp:example.org:53"');
    expect(hintOf('0x7f.1')).toBe('write "127.0.0.1"');
    expect(hintOf('ｅxample.com')).toBe('write "example.com"');
    expect(hintOf('10.0.0.1/8')).toContain('"10.0.0.0/8"');
  });
});
