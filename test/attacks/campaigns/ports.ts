/**
 * Two tenants publish the same few ports of the machine on several addresses, at once and with values that
 * are no ports, take away what is another's, and remove sandboxes. A port leads to the sandbox of who has it,
 * on the address that was asked for, and to nothing once it is taken away.
 */
import { connect } from 'node:net';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { Tenant } from '../support/target.ts';
import { freePorts } from '../../support/free-ports.ts';

const ADDRESSES = ['127.0.0.1', '127.0.0.2'];
const PORTS = 6;
const INSIDE = 3000;
const SERVER = `
import socket, sys, threading
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', ${INSIDE})); s.listen(50)
def talk(c):
    try: c.sendall(sys.argv[1].encode())
    except OSError: pass
    c.close()
while True:
    c, _ = s.accept()
    threading.Thread(target=talk, args=(c,)).start()
`;

interface Published {
  owner: string;
  sandbox: string;
  address: string;
}

export const ports: Campaign = {
  name: 'ports',
  targets: [{ backend: 'local', runtime: 'runc' }],
  flags: () => ['--publish-address', ADDRESSES.join(',')],
  async open(target, random) {
    const { alice, bob } = target;
    const range = await freePorts(PORTS);
    const places = { alice: await place(alice), bob: await place(bob) };
    const known = new Map<number, Published>();
    const publish = async (tenant: Tenant, body: Record<string, unknown>): Promise<string> => {
      const sandbox = places[tenant.name as 'alice' | 'bob'];
      const { status, json, text } = await tenant.call('POST', `/v1/sandboxes/${sandbox}/published`, {
        body,
      });
      if (status >= 500) throw new Error(`${JSON.stringify(body)} → ${status} ${text.slice(0, 500)}`);
      if (status !== 201) return `${json?.error?.code}`;
      const { hostPort, address } = json as { hostPort: number; address: string };
      if (known.has(hostPort)) throw new Error(`port ${hostPort} was given to two`);
      known.set(hostPort, { owner: tenant.name, sandbox, address });
      return `${address}:${hostPort}`;
    };
    return {
      async next() {
        const tenant = random.pick([alice, bob]);
        const words = await oneCase(tenant);
        await checkOne(random.chance(0.8) ? random.pick(range) : random.pick([...known.keys(), range[0]!]));
        return words;
      },
    };

    async function oneCase(tenant: Tenant): Promise<string> {
      const kind = random.below(10);
      if (kind < 3) {
        const hostPort = random.pick(range);
        const bodies = [alice, bob].map(
          (one) => [one, { port: INSIDE, hostPort, address: random.pick(ADDRESSES) }] as const,
        );
        const said = await Promise.all(bodies.map(([one, body]) => publish(one, body)));
        return `both publish ${hostPort} → ${said.join(', ')}`;
      }
      if (kind < 6) {
        const body = wish(random, range);
        return `${tenant.name} publishes ${JSON.stringify(body)} → ${await publish(tenant, body)}`;
      }
      if (kind < 9) return take(tenant);
      return replace(tenant);
    }

    /** Its own, or another's. */
    async function take(tenant: Tenant): Promise<string> {
      const hostPort = random.pick([...known.keys(), ...range]);
      const found = known.get(hostPort);
      const sandbox = random.chance(0.7) ? (found?.sandbox ?? places.alice) : places.bob;
      const { status } = await tenant.call('DELETE', `/v1/sandboxes/${sandbox}/published/${hostPort}`);
      const may = found?.owner === tenant.name && found.sandbox === sandbox;
      if (status !== (may ? 204 : 404))
        throw new Error(`${tenant.name} takes away ${hostPort} of ${found?.owner}: answered ${status}`);
      if (may) known.delete(hostPort);
      return `${tenant.name} takes away ${hostPort} → ${status}`;
    }

    /** A sandbox that is removed takes its ports along. */
    async function replace(tenant: Tenant): Promise<string> {
      const name = tenant.name as 'alice' | 'bob';
      await tenant.call('DELETE', `/v1/sandboxes/${places[name]}`);
      for (const [hostPort, { owner }] of known) if (owner === name) known.delete(hostPort);
      places[name] = await place(tenant);
      return `${name} has another sandbox`;
    }

    async function checkOne(hostPort: number): Promise<void> {
      const found = known.get(hostPort);
      for (const address of ADDRESSES) {
        const expected = found?.address === address ? found.owner : undefined;
        let said = await ask(address, hostPort);
        // What was removed is taken away a moment later.
        for (let tries = 0; said !== expected && tries < 20; tries++) {
          await new Promise((resolve) => setTimeout(resolve, 100));
          said = await ask(address, hostPort);
        }
        if (said !== expected)
          throw new Error(`${address}:${hostPort} leads to ${said}, and is of ${expected}`);
      }
    }
  },
};

/** With a program that says whose it is. */
async function place(tenant: Tenant): Promise<string> {
  const { id } = await tenant.create();
  const { status, text } = await tenant.call('POST', `/v1/sandboxes/${id}/commands`, {
    body: { argv: ['python3', '-c', SERVER, tenant.name] },
  });
  if (status >= 300) throw new Error(`The program did not start: ${text}`);
  return id;
}

function wish(random: Random, range: readonly number[]): Record<string, unknown> {
  return {
    port: random.chance(0.8) ? INSIDE : random.pick<unknown>([0, -1, 65_536, '3000', null]),
    hostPort: random.chance(0.6)
      ? random.pick(range)
      : random.pick<unknown>([0, 0, 1, 22, 1023, 65_536, -1, 1.5, '8080', null, 2 ** 53]),
    ...(random.chance(0.7) && {
      address: random.chance(0.7)
        ? random.pick(ADDRESSES)
        : random.pick<unknown>(['0.0.0.0', '::', 'localhost', '127.0.0.01', '127.1', '', 7, '10.0.0.1']),
    }),
    ...(random.chance(0.05) && { __proto__x: 1 }),
  };
}

/** What it says, or undefined if nobody listens. */
function ask(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    let text = '';
    const socket = connect({ host, port, timeout: 5_000 });
    socket.on('data', (chunk) => (text += chunk.toString()));
    socket.on('timeout', () => socket.destroy());
    socket.on('error', () => {});
    socket.on('close', () => resolve(text === '' ? undefined : text));
  });
}
