import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { encodeCbor } from '../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, writeHeader } from '../../server/src/guest/frame.ts';
import { takeLink, type LyingGuest, type TakenLink } from './support/lying-guest.ts';
import { onEachPlatform } from './support/platforms.ts';
import { SCALE } from './support/scale.ts';
import type { Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;
/** More than one sandbox, because the bound of a guest is not the bound of a project. */
const SANDBOXES = 4;
/** A guest may have 4,096 before its connection is cut. */
const STREAMS = Math.min(1000 * SCALE, 4000);
const QUOTA = { connections: 600, bytes: 32 * MiB };

function frame(type: number, stream: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(HEADER_BYTES);
  writeHeader(head, 0, { length: payload.length, type, channel: 0, stream });
  return Buffer.concat([head, payload]);
}

onEachPlatform('guests that open all the connections that they can', (platform) => {
  let target: Target;
  let port: number;
  let server: Server;
  const taken = new Set<Socket>();
  const attackers: { link: TakenLink; liar: LyingGuest; id: string }[] = [];

  beforeAll(async () => {
    // It takes connections and reads nothing, and sends for as long as anything is taken.
    server = createServer((socket) => {
      taken.add(socket);
      socket.on('error', () => {}).pause();
      const piece = Buffer.alloc(256 * 1024, 'x');
      const send = () => {
        while (!socket.destroyed && socket.write(piece));
      };
      socket.on('drain', send);
      send();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as { port: number }).port;
    const rule = JSON.stringify({ allow: [`127.0.0.1:${port}`] });
    const quota = `egress-connections=${QUOTA.connections},egress-buffer-bytes=${QUOTA.bytes}`;
    target = await platform.start({ flags: ['--max-network', rule, '--default-quota', quota] });
    for (let index = 0; index < SANDBOXES; index++) {
      const { id } = await target.alice.create({ network: { allow: [`127.0.0.1:${port}`] } });
      const link = await takeLink(target, id);
      attackers.push({ link, liar: await link.next({ features: ['egress'] }), id });
    }
  }, 180_000);
  afterAll(async () => {
    for (const { link, liar } of attackers) {
      liar.close();
      link.close();
    }
    for (const socket of taken) socket.destroy();
    server?.close();
    await target?.[Symbol.asyncDispose]();
  }, 60_000);

  /** Opens connections, and fills the window of each. */
  async function flood({ liar }: { liar: LyingGuest }): Promise<void> {
    const full = Buffer.alloc(32 * 1024, 'y');
    try {
      for (let index = 1; index <= STREAMS; index++) {
        const open = encodeCbor({ op: 'egress', address: '127.0.0.1', port });
        await liar.raw(frame(FRAME.open, 2 * index, open));
        // Two frames are one window.
        await liar.raw(frame(FRAME.data, 2 * index, full));
        await liar.raw(frame(FRAME.data, 2 * index, full.subarray(0, full.length - 1)));
        if (index % 100 === 0) await sleep(20);
      }
    } catch {
      // The server has hung up.
    }
  }

  it('hold no more of the server than the quota of their project', { timeout: 120_000 }, async () => {
    let most = 0;
    let mostBytes = 0;
    const { grownBytes, loopMs } = await watchServer(target, async () => {
      const floods = Promise.all(attackers.map(flood));
      const over = new AbortController();
      const watching = (async () => {
        while (!over.signal.aborted) {
          const { json } = await target.alice.call('GET', `/v1/projects/${target.alice.project}/usage`);
          most = Math.max(most, json.egressConnections.used);
          mostBytes = Math.max(mostBytes, json.egressBufferBytes.used);
          await sleep(100);
        }
      })();
      await floods;
      await sleep(2000);
      over.abort();
      await watching;
    });
    expect(most).toBeGreaterThan(100);
    expect(most).toBeLessThanOrEqual(QUOTA.connections);
    // Sockets fill between two weighings.
    expect(mostBytes).toBeLessThanOrEqual(QUOTA.bytes * 1.25);
    // What the garbage collector has not looked at yet comes on top.
    expect(grownBytes).toBeLessThan(200 * MiB);
    expect(loopMs).toBeLessThan(1000);
  });

  it('get a typed denial, which is counted', { timeout: 60_000 }, async () => {
    const attempts = await Promise.all(
      attackers.map(({ id }) => target.alice.call('GET', `/v1/sandboxes/${id}/network/attempts`)),
    );
    const reasons = attempts.flatMap(({ json }) =>
      (json.attempts as { reason: string | null; verdict: string }[]).map(
        ({ verdict, reason }) => `${verdict} ${reason}`,
      ),
    );
    expect(reasons).toContain('denied limit');
    const { text } = await target.admin.call('GET', '/metrics');
    expect(Number(/^cay_network_over_quota_total (\d+)/m.exec(text)?.[1])).toBeGreaterThan(0);
  });

  it('take nothing from another project', { timeout: 60_000 }, async () => {
    const { id } = await target.bob.create({ network: { allow: [`127.0.0.1:${port}`] } });
    const link = await takeLink(target, id, target.bob);
    const liar = await link.next({ features: ['egress'] });
    const got = new Set<number>();
    liar.onFrame = (type) => got.add(type);
    await liar.raw(frame(FRAME.open, 2, encodeCbor({ op: 'egress', address: '127.0.0.1', port })));
    await vi.waitFor(() => expect([...got]).toEqual(expect.arrayContaining([FRAME.message, FRAME.data])), {
      timeout: 10_000,
    });
    expect(got).not.toContain(FRAME.reset);
    liar.close();
    link.close();
    await target.requireAlive();
  });
});
