/** Ways out that ask nobody: addresses, other protocols, sockets of the machine. */
import {
  blocked,
  type CaseWorld,
  type EnforcementCase,
  open,
  type Outcome,
  skipped,
} from '../enforcement-case.ts';

const hex = (text: string) => Buffer.from(text, 'latin1').toString('hex');
/** A packet to one of these would go nowhere: they are for documents. */
const NOWHERE = { four: '198.51.100.7', six: '2001:db8::7' };

/** Tries as each user. Open if the target saw the word, or if anything answered. */
async function outward(world: CaseWorld, line: (word: string) => string): Promise<Outcome> {
  const said: string[] = [];
  for (const user of world.probe.users) {
    const word = world.target.word();
    const answer = await world.probe.attempt(line(hex(word)), user);
    said.push(`${user}: ${answer.slice(0, 60)}`);
    if (world.target.saw(word)) return open(`the target got it (${said.at(-1)})`);
    if (answer.startsWith('answer')) return open(`there was an answer (${said.at(-1)})`);
  }
  return blocked(said.join(', '));
}

const tcp = (
  id: string,
  title: string,
  address: (world: CaseWorld) => string | undefined,
  port?: number,
): EnforcementCase => ({
  id: `direct.tcp-${id}`,
  title: `TCP to ${title}`,
  async run(world) {
    const to = address(world);
    if (to === undefined) return skipped('this machine has no such address');
    return outward(world, (word) => `tcp ${to} ${port ?? world.target.port} 1500 ${word}`);
  },
});
const udp = (
  id: string,
  title: string,
  address: (world: CaseWorld) => string | undefined,
  port?: number,
): EnforcementCase => ({
  id: `direct.udp-${id}`,
  title: `UDP to ${title}`,
  async run(world) {
    const to = address(world);
    if (to === undefined) return skipped('this machine has no such address');
    return outward(world, (word) => `udp ${to} ${port ?? world.target.port} 500 ${word}`);
  },
});
const icmp = (
  id: string,
  title: string,
  address: (world: CaseWorld) => string | undefined,
): EnforcementCase => ({
  id: `direct.icmp-${id}`,
  title: `ICMP echo to ${title}`,
  async run(world) {
    const to = address(world);
    if (to === undefined) return skipped('this machine has no such address');
    return outward(world, () => `icmp ${to} 500`);
  },
});
const refused = (
  id: string,
  title: string,
  line: (world: CaseWorld) => string,
  { fine = /^(ok|connected)/, ownKernel = false }: { fine?: RegExp; ownKernel?: boolean } = {},
): EnforcementCase => ({
  id: `direct.${id}`,
  title,
  async run(world) {
    const said: string[] = [];
    for (const user of world.probe.users) {
      const answer = await world.probe.attempt(line(world), user);
      said.push(`${user}: ${answer.slice(0, 60)}`);
      if (!fine.test(answer)) continue;
      if (ownKernel && world.kernel === 'own') return blocked(`${said.at(-1)}, of the sandbox's own kernel`);
      return open(said.at(-1)!);
    }
    return blocked(said.join(', '));
  },
});

const own = (family: 4 | 6) => (world: CaseWorld) =>
  world.target.own.find((address) => address.includes(':') === (family === 6));
const mapped = (world: CaseWorld) => {
  const four = own(4)(world);
  return four && `::ffff:${four}`;
};
const at = (address: string) => () => address;

export const DIRECT: readonly EnforcementCase[] = [
  tcp('host', "this machine's own address", own(4)),
  tcp('host-ipv6', "this machine's own address over IPv6", own(6)),
  tcp('host-mapped', "this machine's own address, mapped into IPv6", mapped),
  tcp('host-loopback', "the machine's loopback", at('127.0.0.1')),
  tcp('host-loopback-ipv6', "the machine's loopback over IPv6", at('::1')),
  tcp('host-loopback-other', "another address of the machine's loopback", ({ target }) => target.address),
  tcp('metadata', 'the metadata service of clouds', at('169.254.169.254'), 80),
  tcp('metadata-ipv6', 'the metadata service over IPv6', at('fd00:ec2::254'), 80),
  tcp('docker-gateway', "the gateway of Docker's bridge", at('172.17.0.1')),
  tcp('private-10', 'a private address', at('10.0.0.1'), 443),
  tcp('private-192', 'a private address', at('192.168.0.1'), 443),
  tcp('carrier-grade', 'a carrier-grade address', at('100.64.0.1'), 443),
  tcp('elsewhere', 'an address that no rule has', at(NOWHERE.four), 443),
  tcp('elsewhere-smtp', 'port 25 of an address', at(NOWHERE.four), 25),
  tcp('elsewhere-ipv6', 'an address of IPv6', at(NOWHERE.six), 443),
  // A sandbox has its own; one that it was not given may stand for a name elsewhere.
  tcp('stand-in', 'an address that stands for a name in another sandbox', at('198.18.77.77')),
  tcp('stand-in-local', 'another that stands for a name in another sandbox', at('127.64.77.77')),
  tcp('unspecified', 'the unspecified address', at('0.0.0.0')),
  tcp('nat64', 'an address behind NAT64', at('64:ff9b::a9fe:a9fe'), 80),
  udp('host', "this machine's own address", own(4)),
  udp('host-ipv6', "this machine's own address over IPv6", own(6)),
  udp('host-loopback', "the machine's loopback", at('127.0.0.1')),
  udp('stand-in', 'an address that stands for a name in another sandbox', at('198.18.77.77')),
  udp('elsewhere', 'an address', at(NOWHERE.four), 4444),
  udp('quic', 'port 443 (QUIC)', at(NOWHERE.four), 443),
  udp('ntp', 'port 123 (NTP)', at(NOWHERE.four), 123),
  udp('multicast', 'a multicast group', at('224.0.0.251'), 5353),
  udp('broadcast', 'everybody', at('255.255.255.255'), 67),
  udp('elsewhere-ipv6', 'an address of IPv6', at(NOWHERE.six), 443),
  icmp('host', "this machine's own address", own(4)),
  icmp('elsewhere', 'an address', at(NOWHERE.four)),
  icmp('elsewhere-ipv6', 'an address of IPv6', at(NOWHERE.six)),
  {
    id: 'direct.source-route',
    title: 'TCP by a route of its own',
    async run(world) {
      const to = own(4)(world) ?? NOWHERE.four;
      return refused('', '', () => `source-route ${to} ${world.target.port} 1500`, {
        fine: /^connected/,
      }).run(world);
    },
  },
  refused('transparent', 'speaking from addresses of others (IP_TRANSPARENT)', () => 'transparent', {
    ownKernel: true,
  }),
  refused('packet', 'packets of its own making (AF_PACKET)', () => 'socket 17 3 768'),
  refused('sctp', 'SCTP', () => 'socket 2 1 132'),
  refused('dccp', 'DCCP', () => 'socket 2 6 33'),
  refused('netlink-address', 'giving itself an address', () => 'add-address 198.51.100.8'),
  {
    id: 'direct.netlink-packet-rules',
    title: 'changing packet rules',
    async run({ probe }) {
      for (const user of probe.users) {
        const said = await probe.attempt('socket 16 3 12', user);
        if (said !== 'ok') continue;
        // The socket alone changes nothing: that takes CAP_NET_ADMIN.
        const status = await probe.attempt('read /proc/self/status', user);
        const bounding = BigInt(`0x${/CapBnd:\s*([0-9a-f]+)/.exec(status)?.[1] ?? 'ffffffffff'}`);
        if ((bounding >> 12n) & 1n) return open(`${user}: there are the socket and the right`);
      }
      return blocked('there is no socket for it, or no right');
    },
  },
  refused(
    'vsock',
    'the socket to the machine under a virtual machine',
    ({ target }) => `vsock 2 ${target.port}`,
  ),
  refused('bluetooth', 'Bluetooth', () => 'socket 31 3 1'),
  refused('crypto', "the kernel's cryptography (AF_ALG)", () => 'socket 38 5 0'),
  refused('abstract', 'an abstract socket of this machine', ({ target }) => `abstract ${target.abstract}`),
  refused('docker-socket', "Docker's socket", () => 'unix /var/run/docker.sock'),
  refused('containerd-socket', "containerd's socket", () => 'unix /run/containerd/containerd.sock'),
  refused('dbus-socket', "the system's message bus", () => 'unix /run/dbus/system_bus_socket'),
  {
    id: 'direct.interfaces',
    title: 'a network card',
    async run({ probe }) {
      const text = await probe.attempt('read /proc/net/dev');
      const names = [...text.matchAll(/(?:^|\|)\s*([\w.-]+):/g)].map(([, name]) => name!);
      const others = names.filter((name) => name !== 'lo');
      return others.length === 0 ? blocked('there is lo alone') : open(`there are ${others.join(', ')}`);
    },
  },
];
