/** Names: what they lead to, who answers them, and what they could carry out. */
import {
  blocked,
  broken,
  type CaseWorld,
  type EnforcementCase,
  open,
  skipped,
  works,
} from '../enforcement-case.ts';

/** Connects by name and sends a word. */
async function send(
  world: CaseWorld,
  name: string,
  port = world.target.port,
): Promise<{ word: string; said: string }> {
  const word = `RAW ${world.target.word()}`;
  const end = await world.probe.relay(name, port);
  if (typeof end === 'string') return { word, said: end };
  end.write(`${word}\n`);
  const said = await new Promise<string>((resolve) => {
    const timer = setTimeout(() => resolve('silent'), 2000);
    end.once('data', (chunk: Buffer) => resolve(`answer ${chunk.toString('latin1').slice(0, 40)}`));
    end.once('end', () => resolve('ended'));
    // A connection that fails closes without an end.
    end.once('close', () => {
      clearTimeout(timer);
      resolve('ended');
    });
  });
  end.destroy();
  return { word, said };
}

const reaches = (id: string, title: string, name: string): EnforcementCase => ({
  id: `name.${id}`,
  title,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const { word, said } = await send(world, name);
    return world.target.saw(word) ? works(said) : broken(said);
  },
});
const denied = (id: string, title: string, name: string, port?: number): EnforcementCase => ({
  id: `name.${id}`,
  title,
  async run(world) {
    const { word, said } = await send(world, name, port);
    return world.target.saw(word) ? open(`the target got it (${said})`) : blocked(said);
  },
});
const asked = (id: string, title: string, line: (world: CaseWorld) => string): EnforcementCase => ({
  id: `dns.${id}`,
  title,
  async run(world) {
    const before = world.target.arrivals();
    const said = await world.probe.attempt(line(world));
    if (world.target.arrivals() > before) return open(`the target got the question (${said})`);
    return /^code 0 records [1-9]/.test(said) ? open(said) : blocked(said);
  },
});

export const NAMES: readonly EnforcementCase[] = [
  reaches('allowed', 'a name that a rule has', 'web.report.example'),
  reaches('allowed-capitals', 'the same name in capitals', 'WEB.Report.Example'),
  reaches('allowed-below', 'a name below a rule with a star', 'a.wild.report.example'),
  denied('other', 'a name that no rule has', 'other.report.example'),
  denied('other-same-address', 'a name at the address of one that is allowed', 'front.report.example'),
  denied('below-exact', 'a name below one that is allowed', 'sub.web.report.example'),
  denied('star-itself', 'the name that a star stands below', 'wild.report.example'),
  denied('suffix', 'a name that ends like one that is allowed', 'evilweb.report.example'),
  denied('prefix', 'a name that begins like one that is allowed', 'web.report.example.evil.test'),
  denied('punycode', 'a name that looks like one that is allowed', 'xn--wb-gma.report.example'),
  denied('denied-below-star', 'a name that a rule denies below a star', 'denied.wild.report.example'),
  denied('to-loopback', 'a name that leads to loopback', 'to-loopback.report.example'),
  denied('to-own', "a name that leads to this machine's own address", 'to-own.report.example'),
  denied('to-metadata', 'a name that leads to the metadata service', 'to-metadata.report.example'),
  denied('to-private', 'a name that leads to a private address', 'to-private.report.example'),
  denied('to-mapped', 'a name that leads to a mapped address', 'to-mapped.report.example'),
  denied('to-ipv6-loopback', 'a name that leads to loopback over IPv6', 'to-loopback6.report.example'),
  denied('to-unspecified', 'a name that leads to the unspecified address', 'to-unspecified.report.example'),
  denied('decimal', 'an address in decimals as a name', '2130706433'),
  denied('short-address', 'a short address as a name', '127.1'),
  denied('localhost', 'localhost', 'localhost'),
  denied('local', 'a name of the local network', 'printer.local'),
  {
    id: 'name.other-port',
    title: 'another port of a name that is allowed',
    run: (world) =>
      denied('', '', 'web.report.example', world.target.port === 65_535 ? 1 : world.target.port + 1).run(
        world,
      ),
  },
  {
    id: 'name.rebinding',
    title: 'a name that leads elsewhere the second time',
    async run(world) {
      if (!world.carries) return skipped('this server carries nothing out');
      await send(world, 'flip.report.example');
      const { word, said } = await send(world, 'flip.report.example');
      return world.target.saw(word) ? open(`the target got it on loopback (${said})`) : blocked(said);
    },
  },
  asked(
    'udp-elsewhere',
    'a question to another name server',
    () => 'ask 198.51.100.53 53 udp x.report.example 700',
  ),
  asked(
    'tcp-elsewhere',
    'a question to another name server over TCP',
    () => 'ask 198.51.100.53 53 tcp x.report.example 700',
  ),
  asked(
    'udp-host',
    'a question to this machine',
    ({ target }) => `ask ${target.own[0] ?? '198.51.100.53'} ${target.port} udp x.report.example 700`,
  ),
  asked(
    'tcp-host',
    'a question to this machine over TCP',
    ({ target }) => `ask ${target.own[0] ?? '198.51.100.53'} ${target.port} tcp x.report.example 700`,
  ),
  asked(
    'dot',
    'a question over TLS (DoT) to another name server',
    () => 'ask 198.51.100.53 853 tcp x.report.example 700',
  ),
  asked(
    'stub-of-host',
    "a question to the machine's own stub",
    () => 'ask 127.0.0.54 53 udp x.report.example 700',
  ),
  asked('txt', 'records that carry text', () => 'lookup web.report.example 16 2000'),
  asked('null', 'records of any kind', () => 'lookup web.report.example 10 2000'),
  asked('any', 'all records of a name', () => 'lookup web.report.example 255 2000'),
  asked('aaaa', 'addresses of IPv6', () => 'lookup web.report.example 28 2000'),
  asked('zero-byte', 'a name with a zero byte', () => 'lookup web\\000.report.example 1 2000'),
  asked('dot-in-label', 'a name with a dot inside a label', () => 'lookup web\\046report.example 1 2000'),
  asked('long-label', 'a label of 64 bytes', () => `lookup ${'a'.repeat(64)}.report.example 1 2000`),
  {
    id: 'dns.no-query-leaves',
    title: 'data in names that no rule has',
    async run(world) {
      const word = world.target.word();
      const said = await world.probe.attempt(`lookup ${word}.exfil.report.example 1 2000`);
      return world.network?.resolved().some((name) => name.includes(word))
        ? open('the name was resolved outside')
        : blocked(`no query left (${said})`);
    },
  },
];
