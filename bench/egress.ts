/**
 * What the egress costs, in one process on loopback: `node bench/egress.ts`. Beside each figure is the same
 * without the egress.
 */
import { once } from 'node:events';
import { createServer as createHttpsServer, get } from 'node:https';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { newAuthority, openAuthority } from '../server/src/egress/tls/authority.ts';
import { openWorld } from '../server/src/egress/testing/program.ts';

const TOTAL = 512 * 1024 * 1024;
const ROUNDS = 300;

const listen = async (server: Server): Promise<number> => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
};
const show = (what: string, value: string) => process.stdout.write(`${what.padEnd(52)} ${value}\n`);

function pour(socket: NodeJS.WritableStream): void {
  const piece = Buffer.alloc(64 * 1024);
  let left = TOTAL;
  const write = () => {
    while (left > 0) {
      left -= piece.length;
      if (!socket.write(piece)) {
        socket.once('drain', write);
        return;
      }
    }
    socket.end();
  };
  write();
}

async function drain(stream: NodeJS.ReadableStream): Promise<number> {
  const began = performance.now();
  let size = 0;
  stream.on('data', (chunk: Buffer) => void (size += chunk.length));
  await once(stream, 'end');
  return size / 1e6 / ((performance.now() - began) / 1000);
}

async function median(round: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let index = 0; index < ROUNDS; index++) {
    const began = performance.now();
    await round();
    times.push(performance.now() - began);
  }
  return times.toSorted((one, other) => one - other)[ROUNDS / 2]!;
}

const material = newAuthority();
const site = openAuthority(material);
const authority = openAuthority(newAuthority());
const world = openWorld({
  authority,
  trusted: [material.certificate],
  limits: { connectionsPerMinute: 1_000_000 },
});
for (const name of ['raw.example.org', 'api.example.org']) world.names.set(name, ['127.0.0.1']);

const flood = await listen(createServer((socket) => pour(socket.on('error', () => {}))));
const echo = await listen(
  createServer((socket) => void socket.on('error', () => {}).on('data', (chunk) => socket.write(chunk))),
);
const web = await listen(
  createHttpsServer(
    { SNICallback: (name, done) => done(null, site.contextFor(name)) },
    (message, response) => {
      if (message.url === '/big') pour(response);
      else response.end('ok');
    },
  ) as unknown as Server,
);
world.egress.policies.set(world.sandbox, [
  { allow: ['raw.example.org:*', { to: 'api.example.org:*', methods: ['GET'] }] },
  'public',
]);

const roundTrip = async (socket: Duplex) => {
  socket.write('\0ping');
  await once(socket, 'data');
  socket.destroy();
};
show('bytes, without', `${(await drain(connect(flood, '127.0.0.1'))).toFixed(0)} MB/s`);
show(
  'bytes, carried',
  `${(await drain(world.connect({ name: 'raw.example.org', port: flood }).socket)).toFixed(0)} MB/s`,
);
show(
  'connect and first byte, without',
  `${(await median(() => roundTrip(connect(echo, '127.0.0.1')))).toFixed(2)} ms`,
);
show(
  'connect and first byte, carried',
  `${(await median(() => roundTrip(world.connect({ name: 'raw.example.org', port: echo }).socket))).toFixed(2)} ms`,
);

const secure = async (carried: boolean) => {
  const raw = carried
    ? world.connect({ name: 'api.example.org', port: web }).socket
    : connect(web, '127.0.0.1');
  const socket = connectTls({
    socket: raw,
    servername: 'api.example.org',
    ca: [authority.certificate, material.certificate],
  });
  await once(socket, 'secureConnect');
  return socket;
};
const fetchOn = async (
  socket: Socket,
  path: string,
  how: (stream: NodeJS.ReadableStream) => Promise<number>,
) => {
  const request = get({ path, createConnection: () => socket, headers: { host: `api.example.org:${web}` } });
  const [answer] = (await once(request, 'response')) as [NodeJS.ReadableStream];
  return how(answer);
};
for (const carried of [false, true])
  show(
    `HTTPS download, ${carried ? 'terminated and inspected' : 'without'}`,
    `${(await fetchOn(await secure(carried), '/big', drain)).toFixed(0)} MB/s`,
  );
for (const carried of [false, true])
  show(
    `HTTPS handshake and request, ${carried ? 'terminated and inspected' : 'without'}`,
    `${(
      await median(async () => {
        const socket = await secure(carried);
        await fetchOn(socket, '/', drain);
        socket.destroy();
      })
    ).toFixed(2)} ms`,
  );
const began = performance.now();
for (let index = 0; index < 20_000; index++)
  await world.egress.lookup(world.sandbox, { name: 'raw.example.org' });
show('lookup', `${((performance.now() - began) / 20).toFixed(2)} µs`);
const minted = performance.now();
for (let index = 0; index < 200; index++) authority.contextFor(`n${index}.example.org`);
show('certificate of a new name', `${((performance.now() - minted) / 200).toFixed(2)} ms`);
world.egress.close();
process.exit(0);
