/**
 * Connections of real programs in a real sandbox, through the real carrier: long transfers, cuts, floods of
 * names.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { newId, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { LocalBackend } from '../../server/src/backends/local/local.ts';
import { localWorld, type LocalWorld } from '../../server/src/backends/local/testing/local-world.ts';
import { collect } from '../../server/src/guest/collect.ts';
import { openWorld, type World } from '../../server/src/egress/testing/program.ts';
import { whyLater } from '../support/tier.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { FORGE } from './forge-guest.ts';

const reason = whyNoLocal();
const NAME = 'target.example.org';

/** Sends random bytes in pieces of many sizes to something that sends them back, and compares what comes. */
const ECHO = `
import hashlib, os, random, socket, sys, threading
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
random.seed(7); sent = hashlib.sha256(); came = hashlib.sha256(); count = 0
def send():
    for _ in range(int(sys.argv[3])):
        piece = os.urandom(random.choice([1, 700, 5000, 20000, 65536, 65548, 200000, 400000]))
        sent.update(piece); one.sendall(piece)
    one.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
while True:
    piece = one.recv(random.choice([100, 70000, 300000]))
    if not piece: break
    came.update(piece); count += len(piece)
print(sent.hexdigest() == came.hexdigest(), count > 1000000)
`;
/** Reads until the connection fails or ends, and says which. */
const READ = `
import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2]))); count = 0
one.sendall(b'more'); one.settimeout(20)
try:
    while True:
        piece = one.recv(65536)
        if not piece: print('end'); break
        count += len(piece)
except OSError as error: print(type(error).__name__)
`;
const LOOKUPS = `
import socket, sys, time
began = time.time(); answered = 0
for index in range(int(sys.argv[1])):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.settimeout(3)
    label = ('n%d' % index).encode()
    name = b''.join(bytes([len(part)]) + part for part in [label, b'flood', b'example', b'org']) + b'\\0'
    one.sendto(b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\1\\0\\1', ('127.0.0.53', 53))
    try: answered += one.recv(512)[:2] == b'\\0\\7'
    except OSError: pass
    one.close()
print(answered, round(time.time() - began, 1))
`;
describe.skipIf(reason !== undefined)(
  `connections from inside a sandbox on runc${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let world: World;
    let local: LocalWorld;
    let backend: LocalBackend;
    let id: SandboxId;
    let echo: number;
    let flood: number;
    const servers: Server[] = [];

    const listen = async (serve: (socket: Socket) => void) => {
      const server = createServer({ allowHalfOpen: true }, (socket) => serve(socket.on('error', () => {})));
      servers.push(server);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      return (server.address() as AddressInfo).port;
    };

    beforeAll(async () => {
      echo = await listen((socket) => void socket.pipe(socket));
      const piece = Buffer.alloc(64 * 1024, 'flood');
      flood = await listen((socket) => {
        const more = () => {
          while (!socket.destroyed && socket.write(piece));
        };
        socket.once('data', more).on('drain', more);
      });
      world = openWorld();
      world.names.set(NAME, ['127.0.0.1']);
      local = await localWorld({ runtime: 'runc', egress: world.egress });
      backend = await local.open();
      id = await local.box(backend);
      allow();
    }, 60_000);
    afterAll(async () => {
      await backend?.remove(id);
      await local?.destroy();
      world?.egress.close();
      for (const server of servers) server.close();
    }, 60_000);

    const run = async (program: string, ...args: (string | number)[]) =>
      (
        await local.run(backend, id, `python3 -c '${program.replaceAll("'", "'\\''")}' ${args.join(' ')}`)
      ).trim();
    const allow = () => world.egress.policies.set(id, [{ allow: [`${NAME}:*`] }, 'public']);
    const attempts = () => world.egress.attempts(id);

    it('bytes in pieces of all sizes come back as they were sent', { timeout: 60_000 }, async () => {
      const both = await Promise.all([run(ECHO, NAME, echo, 120), run(ECHO, NAME, echo, 120)]);
      expect(both).toEqual(['True True', 'True True']);
    });

    it('a change of the policy cuts a connection that carries', { timeout: 60_000 }, async () => {
      const reading = run(READ, NAME, flood);
      await vi.waitFor(
        () => expect(attempts().some((one) => one.port === flood && one.bytesIn > 1e6)).toBe(true),
        {
          timeout: 20_000,
        },
      );
      world.egress.policies.set(id, ['public', { deny: ['*'] }]);
      expect(await reading).toBe('ConnectionResetError');
      expect(attempts().find((one) => one.port === flood)).toMatchObject({
        verdict: 'denied',
        reason: 'policy_changed',
      });
      allow();
      expect(await run(ECHO, NAME, echo, 40)).toBe('True True');
    });

    it('readers that are gone in the middle leave nothing open', { timeout: 60_000 }, async () => {
      const quick = READ.replace('while True:', 'while count < 2000000:');
      await Promise.all([1, 2, 3, 4].map(() => run(quick, NAME, flood)));
      await vi.waitFor(() => expect(world.egress.stats(id)?.connections).toBe(0), { timeout: 10_000 });
      expect(await run(ECHO, NAME, echo, 40)).toBe('True True');
    });

    it('a flood of lookups is answered, and names go on', { timeout: 180_000 }, async () => {
      const count = whyLater() ? 3_000 : 10_000;
      const [answered] = (await run(LOOKUPS, count)).split(' ').map(Number);
      expect(answered).toBe(count);
      // What is above the guest's rate was refused inside, and nothing was resolved for a lookup alone.
      expect(world.resolved.filter((name) => name.includes('flood'))).toEqual([]);
      await vi.waitFor(async () => expect(await run(ECHO, NAME, echo, 40)).toBe('True True'), {
        timeout: 20_000,
        interval: 500,
      });
    });

    it(
      'root that speaks as a guest on the sockets that it finds reaches nothing',
      { timeout: 60_000 },
      async () => {
        world.names.set('forged.example.org', ['127.0.0.1']);
        const guest = await backend.connect(id);
        const argv = ['python3', '-c', FORGE];
        const forging = await guest.exec({ id: newId('cmd'), argv, env: {}, workdir: '/', user: 'root' });
        const { stdout } = await collect(forging, { maxBytes: 65_536 });
        // At least the guest's own socket, which the server listens on.
        expect(stdout.toString()).toMatch(/^tried [1-9]/);
        expect(attempts().filter((one) => one.name === 'forged.example.org')).toEqual([]);
        expect(world.resolved).not.toContain('forged.example.org');
        await guest.commands();
        expect(await run(ECHO, NAME, echo, 40)).toBe('True True');
      },
    );
  },
);
