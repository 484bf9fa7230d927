/** `kill -9` of what carries connections: programs inside reach nothing until it is back, and then go on. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { startDockerd, whyNoDockerd } from '../support/dockerd.ts';
import { whyNoLocal } from '../support/local-platform.ts';

/** What a platform is for `carrier-process.ts`. */
interface Place {
  readonly words: readonly string[];
  close(): Promise<void>;
}

async function local(runtime: string): Promise<Place> {
  const dir = await mkdtemp('/tmp/cay-k-');
  await chmod(dir, 0o711);
  return {
    words: ['local', dir, runtime],
    async close() {
      await (await openLocal({ dir, runtime })).destroy();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
async function docker(): Promise<Place> {
  const engine = await startDockerd();
  await engine.importBaseImage();
  return { words: ['docker', engine.host], close: () => engine.stop() };
}
const PLATFORMS = [
  ['runc', whyNoLocal(), () => local('runc')],
  ['runsc', whyNoLocal(), () => local('runsc')],
  ['docker', whyNoDockerd(), docker],
] as const;

/**
 * Tries the name and addresses without end, and the name over UDP. What arrives tells when, and how it was
 * reached.
 */
const LOOP = (port: number) => `
import socket, time
held = None
while True:
    for host in ("target.example.org", "127.83.0.1", "198.51.100.7"):
        try:
            one = socket.create_connection((host, ${port}), 2)
            one.sendall(("try " + host + "\\n").encode()); one.settimeout(1); one.recv(1); one.close()
        except OSError: pass
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(0.2); one.connect(("target.example.org", ${port})); one.send(b"datagram"); one.recv(9)
    except OSError: pass
    try:
        if held is None: held = socket.create_connection(("target.example.org", ${port}), 2)
        held.sendall(b"held\\n")
    except OSError: held = None
    time.sleep(0.05)
`;

const REACHED = ['try target.example.org', 'held', 'datagram'];

for (const [name, why, make] of PLATFORMS)
  describe.skipIf(why !== undefined)(
    `the carrier is killed on ${name}${why ? ` (skipped: ${why})` : ''}`,
    () => {
      const id = newId('sbx');
      let place: Place;
      let server: Server;
      let datagrams: DatagramSocket;
      let port: number;
      let carrier: ChildProcess | undefined;
      let seen: { at: number; line: string }[] = [];
      const sockets = new Set<Socket>();

      async function start(environment: Record<string, string> = {}): Promise<void> {
        const program = join(import.meta.dirname, 'carrier-process.ts');
        const child = spawn(process.execPath, [program, id, String(port), ...place.words], {
          stdio: ['ignore', 'pipe', 'inherit'],
          env: { ...process.env, ...environment },
        });
        carrier = child;
        const exited = once(child, 'exit').then(([code]) => {
          throw new Error(`the carrier ended with ${String(code)}`);
        });
        exited.catch(() => {});
        await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exited]);
      }
      async function kill(): Promise<void> {
        const gone = once(carrier!, 'exit');
        carrier!.kill('SIGKILL');
        await gone;
      }
      const since = (at: number) => seen.filter((one) => one.at > at).map(({ line }) => line);

      beforeAll(async () => {
        place = await make();
        server = createServer((socket) => {
          sockets.add(socket);
          socket.on('error', () => {});
          createInterface({ input: socket }).on('line', (line) => {
            seen.push({ at: performance.now(), line });
            if (line.startsWith('try')) socket.write('x');
          });
        }).listen(0, '127.0.0.1');
        await once(server, 'listening');
        ({ port } = server.address() as AddressInfo);
        datagrams = createSocket('udp4', (message, from) => {
          seen.push({ at: performance.now(), line: message.toString() });
          datagrams.send('x', from.port, from.address);
        }).bind(port, '127.0.0.1');
        await once(datagrams, 'listening');
      }, 120_000);
      afterAll(async () => {
        if (carrier?.exitCode === null && carrier.signalCode === null) await kill();
        await start({ CAY_TEST_REMOVE: '1' });
        if (carrier!.exitCode === null) await once(carrier!, 'exit');
        await place.close();
        for (const socket of sockets) socket.destroy();
        server.close();
        datagrams.close();
      }, 120_000);

      it('nothing is reached meanwhile, and names are again afterwards', { timeout: 180_000 }, async () => {
        await start({ CAY_TEST_PROGRAM: LOOP(port) });
        for (let round = 0; round < 3; round++) {
          const from = performance.now();
          await expect.poll(() => new Set(since(from)), { timeout: 30_000 }).toEqual(new Set(REACHED));
          await kill();
          const killed = performance.now() + 100;
          await sleep(2500);
          expect(since(killed)).toEqual([]);
          seen = [];
          await start();
        }
        const from = performance.now();
        await expect.poll(() => new Set(since(from)), { timeout: 30_000 }).toEqual(new Set(REACHED));
        // An address that no rule has was never reached.
        for (const { line } of seen) expect(REACHED).toContain(line);
      });
    },
  );
