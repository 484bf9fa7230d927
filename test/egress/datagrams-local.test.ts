/**
 * Datagrams of real programs in real sandboxes: what is refused fails at once, what a rule allows goes both
 * ways.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import type { SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { LocalBackend } from '../../server/src/backends/local/local.ts';
import { localWorld, type LocalWorld } from '../../server/src/backends/local/testing/local-world.ts';
import { openWorld, type World } from '../../server/src/egress/testing/program.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const reason = whyNoLocal();
const NAME = 'dns.example.org';

/** Prints what became of a datagram to each target, and in how many milliseconds. */
const ASK = `
import errno, socket, sys, time
for target in sys.argv[1:]:
    host, port, text = target.split(',')
    began = time.perf_counter()
    try:
        infos = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = infos[0]
        one = socket.socket(family, kind, protocol); one.settimeout(3)
        one.connect(address); one.send(text.encode()); said = one.recv(65536).decode()
    except socket.timeout: said = 'silence'
    except OSError as error: said = errno.errorcode.get(error.errno, str(error))
    print(said[:40], len(said), int((time.perf_counter() - began) * 1000), sep='|')
`;
const PING = `
import errno, socket, time
for family, protocol, address in [(socket.AF_INET, 1, '192.0.2.1'), (socket.AF_INET6, 58, '2001:db8::1')]:
    began = time.perf_counter()
    try:
        one = socket.socket(family, socket.SOCK_DGRAM, protocol); one.settimeout(3)
        one.connect((address, 0)); one.send(bytes([8 if protocol == 1 else 128, 0, 0, 0, 0, 1, 0, 1])); one.recv(99)
        said = 'answer'
    except socket.timeout: said = 'silence'
    except OSError as error: said = errno.errorcode.get(error.errno, str(error))
    print(said, 0, int((time.perf_counter() - began) * 1000), sep='|')
`;

describe.skipIf(reason !== undefined).each(['runc', 'runsc'])(
  `datagrams from inside a sandbox on %s${reason ? ` (skipped: ${reason})` : ''}`,
  (runtime) => {
    let world: World;
    let local: LocalWorld;
    let backend: LocalBackend;
    let id: SandboxId;
    let target: Socket;
    let port: number;
    const got: string[] = [];

    beforeAll(async () => {
      target = createSocket('udp4');
      target.on('message', (message, { port: from, address }) => {
        const text = message.toString();
        got.push(text);
        if (text !== 'silent')
          target.send(text.startsWith('big') ? 'B'.repeat(8000) : text.toUpperCase(), from, address);
      });
      target.bind(0, '127.0.0.1');
      await once(target, 'listening');
      ({ port } = target.address());
      world = openWorld();
      world.names.set(NAME, ['127.0.0.1']);
      local = await localWorld({ runtime, egress: world.egress });
      backend = await local.open();
      id = await local.box(backend);
      world.egress.policies.set(id, ['public']);
    }, 60_000);
    afterAll(async () => {
      await backend?.remove(id);
      await local?.destroy();
      world?.egress.close();
      target?.close();
    }, 60_000);

    const run = async (program: string, ...args: string[]) => {
      const said = await local.run(
        backend,
        id,
        `python3 -c '${program.replaceAll("'", "'\\''")}' ${args.join(' ')}`,
      );
      return said
        .trim()
        .split('\n')
        .map((line) => line.split('|'))
        .map(([answer = '', length, ms]) => ({ answer, length: Number(length), ms: Number(ms) }));
    };
    const allow = () => world.egress.policies.set(id, [{ allow: [`udp:${NAME}:${port}`] }, 'public']);
    const allowed = (text: string) => `${NAME},${port},${text}`;

    it('UDP, QUIC, IPv6 and ICMP fail at once where no rule allows datagrams', async () => {
      const all = [
        ...(await run(
          ASK,
          allowed('out'),
          `${NAME},443,quic`,
          '192.0.2.1,53,dns',
          '192.0.2.1,443,quic',
          '2001:db8::1,53,six',
        )),
        ...(await run(PING)),
      ];
      expect(all).toHaveLength(7);
      for (const { answer, ms } of all) {
        expect(answer).toMatch(
          /^E(CONNREFUSED|NETUNREACH|HOSTUNREACH|ADDRNOTAVAIL|PERM|ACCES|AFNOSUPPORT|PROTONOSUPPORT|INVAL)$/,
        );
        expect(ms).toBeLessThan(500);
      }
      expect(got).toEqual([]);
    });

    it('go both ways where a rule allows them, and are recorded', async () => {
      allow();
      const [small, big] = await run(ASK, allowed('hello'), allowed('big'));
      expect(small).toMatchObject({ answer: 'HELLO' });
      expect(big).toMatchObject({ length: 8000 });
      const attempts = world.egress.attempts(id).filter(({ verdict }) => verdict === 'allowed');
      expect(attempts).toMatchObject([
        { name: NAME, port, protocol: 'udp', bytesOut: 3, bytesIn: 8000 },
        { name: NAME, port, protocol: 'udp', bytesOut: 5, bytesIn: 5 },
      ]);
    });

    it('other ports of the same name fail at once all the same', async () => {
      allow();
      const [other] = await run(ASK, `${NAME},${port === 65_535 ? 1 : port + 1},x`);
      expect(other).toMatchObject({ answer: 'ECONNREFUSED' });
      expect(other!.ms).toBeLessThan(500);
    });

    it('a rule that goes away cuts the flow, and its address fails at once from then on', async () => {
      allow();
      await run(ASK, allowed('before'));
      world.egress.policies.set(id, ['public']);
      await vi.waitUntil(() => world.egress.attempts(id).every(({ open }) => !open));
      got.length = 0;
      const [after] = await run(ASK, allowed('after'));
      expect(after).toMatchObject({ answer: 'ECONNREFUSED' });
      expect(got).toEqual([]);
    });

    it('what a guest asks for by itself is decided all the same', async () => {
      // A program can keep the address of a name from when it was allowed.
      allow();
      await run(ASK, allowed('once'));
      world.egress.policies.set(id, ['none']);
      got.length = 0;
      await run(ASK, allowed('more'));
      expect(got).toEqual([]);
    });

    it('more flows than there may be end the oldest, and the newest go on', async () => {
      allow();
      const MANY = `
import socket, sys
address = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_DGRAM)[0][4]
answers = 0
for n in range(400):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.settimeout(3)
    one.sendto(b'x', address)
    answers += one.recv(10) == b'X'
print(answers, 0, 0, sep='|')
`;
      expect(await run(MANY, NAME, String(port))).toMatchObject([{ answer: '400' }]);
      expect(world.egress.stats(id)!.connections).toBeLessThanOrEqual(256);
    });
  },
);
