import { afterEach, describe, expect, it } from 'vitest';
import { WebSocketServer, type WebSocket } from 'ws';
import { probeNetwork, type ProbeOptions } from './network-probe.ts';
import { PROBE_PORT } from '../probe-pod.ts';
import { fakeApiServer } from '../testing/fake-api-server.ts';

const runtime = { name: 'default', gvisor: false };
const settings = { guestImage: 'guest:1', baseImage: 'base:1', pullPolicy: 'Never' as const };
const PEER = `10.0.0.2:${PROBE_PORT}`;

function pod(name: string, ip: string, phase: 'running' | 'unpullable' = 'running') {
  const waiting = { waiting: { reason: 'ErrImageNeverPull', message: 'no such image' } };
  const state = phase === 'running' ? { running: {} } : waiting;
  const containerStatuses = [{ name: 'sandbox', ready: true, restartCount: 0, state }];
  return { metadata: { name, uid: name }, status: { phase: 'Running', podIP: ip, containerStatuses } };
}

describe('probeNetwork', () => {
  const closing: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
  });

  /** A cluster in which a pod reaches what `reaches` says. */
  async function probing(
    reaches: (pod: string, address: string) => boolean,
    pods = [pod('a', '10.0.0.1'), pod('b', '10.0.0.2')],
  ) {
    const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'v5.channel.k8s.io' });
    const tried: string[] = [];
    const say = (socket: WebSocket, channel: number, text: string) =>
      socket.send(Buffer.from([channel, ...Buffer.from(text)]));
    const api = await fakeApiServer({
      answer(url, response) {
        response.end(JSON.stringify(url.pathname.endsWith('/pods') ? { metadata: {}, items: pods } : {}));
      },
      upgrade(request, socket, head) {
        const url = new URL(request.url ?? '', 'http://fake');
        const [, , ...words] = url.searchParams.getAll('command');
        const name = url.pathname.split('/').at(-2)!;
        sockets.handleUpgrade(request, socket, head, (open) => {
          tried.push(...words.slice(1));
          for (const address of words.slice(1))
            say(open, 1, `${address} ${reaches(name, address) ? 'reached' : 'connection timed out'}\n`);
          say(open, 3, '{"status":"Success"}');
          open.close();
        });
      },
    });
    closing.push(() => api.close());
    const render: ProbeOptions['render'] = ({ name, labels, pod: spec }) => ({
      path: '/made',
      body: { name, labels, spec },
    });
    const seen = probeNetwork(
      { client: api.client, namespace: 'here', installation: 'ours', settings, render, settleMs: 5 },
      runtime,
    );
    return { seen, tried, asked: api.asked };
  }

  it('says that nothing is enforced if anything is reached, and what', async () => {
    const { seen, asked, tried } = await probing(() => true);
    expect(await seen).toEqual({
      state: 'not_enforced',
      reason: expect.stringContaining(`another pod (${PEER})`) as string,
    });
    expect(tried).toContain('169.254.169.254:80');
    // What is at loopback of ours is another thing at loopback of a pod.
    expect(tried.filter((address) => address.startsWith('127.'))).toEqual([]);
    const names = asked.filter((each) => each.startsWith('DELETE'));
    expect(names).toHaveLength(2);
    const open = await probing((name, address) => name === 'b' || address === '169.254.169.254:80');
    expect(await open.seen).toMatchObject({
      state: 'not_enforced',
      reason: expect.stringContaining('the metadata service') as string,
    });
  });

  it('says that it is enforced only if what was not reached was there', async () => {
    expect(await (await probing((name) => name === 'b')).seen).toMatchObject({ state: 'enforced' });
    expect(await (await probing(() => false)).seen).toMatchObject({ state: 'unknown' });
  });

  it('gives a plugin a moment until its rules hold', async () => {
    let attempts = 0;
    const slow = await probing((name, address) => name === 'b' || (address === PEER && ++attempts <= 2));
    expect(await slow.seen).toMatchObject({ state: 'enforced' });
    expect(attempts).toBe(3);
  });

  it('rejects and cleans up where the pods cannot run', async () => {
    const { seen, asked } = await probing(() => true, [pod('a', '10.0.0.1', 'unpullable')]);
    await expect(seen).rejects.toThrow('no such image');
    expect(asked.filter((each) => each.startsWith('DELETE'))).toHaveLength(2);
  });
});
