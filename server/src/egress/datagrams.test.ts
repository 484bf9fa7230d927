import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import type { NetworkPolicy } from '@cay/sdk/protocol';
import { describe, expect, it, vi } from 'vitest';
import { DatagramReader, frameDatagram, MAX_DATAGRAM } from '../lib/datagram-frames.ts';
import { opened, world } from './testing/servers.ts';

const NAME = 'dns.example.org';

/** Sends back what it gets, in capitals. */
async function echo(
  host = '127.0.0.1',
): Promise<{ port: number; got: string[]; socket: Socket; from: RemoteInfo[] }> {
  const socket = createSocket('udp4');
  const got: string[] = [];
  const from: RemoteInfo[] = [];
  socket.on('message', (message, sender) => {
    got.push(message.toString());
    from.push(sender);
    socket.send(message.toString().toUpperCase(), sender.port, sender.address);
  });
  socket.bind(0, host);
  await once(socket, 'listening');
  opened.push(() => socket.close());
  return { port: socket.address().port, got, socket, from };
}

/** The datagrams that come back. */
function answers(socket: Duplex): string[] {
  const reader = new DatagramReader();
  const all: string[] = [];
  socket.on('data', (chunk: Buffer) => all.push(...reader.push(chunk).map(String)));
  return all;
}

async function open(policy: (port: number) => NetworkPolicy | NetworkPolicy[], host?: string) {
  const server = await echo(host);
  const made = world(policy(server.port));
  made.names.set(NAME, [host ?? '127.0.0.1']);
  return { ...made, ...server };
}
const attempt = ({ egress, sandbox }: Awaited<ReturnType<typeof open>>) => egress.attempts(sandbox)[0]!;

describe('datagrams', () => {
  it('go to the pinned address and back, and are recorded with their bytes', async () => {
    const made = await open((port) => [{ allow: [`udp:${NAME}:${port}`] }, 'public']);
    const { socket } = made.datagrams({ name: NAME, port: made.port });
    const back = answers(socket);
    socket.write(Buffer.concat([frameDatagram(Buffer.from('one')), frameDatagram(Buffer.from('two'))]));
    await vi.waitUntil(() => back.length === 2);
    expect(back).toEqual(['ONE', 'TWO']);
    expect(made.resolved).toEqual([NAME]);
    expect(attempt(made)).toMatchObject({
      open: true,
      protocol: 'udp',
      address: '127.0.0.1',
      bytesOut: 6,
      bytesIn: 6,
    });
    socket.end();
    await vi.waitUntil(() => !attempt(made).open);
    expect(attempt(made)).toMatchObject({
      verdict: 'allowed',
      rule: `udp:${NAME}:${made.port}`,
      bytesOut: 6,
    });
    expect(made.egress.stats(made.sandbox)).toMatchObject({ connections: 0 });
  });

  it('of another sender than the target do not come in', async () => {
    const made = await open((port) => ({ allow: [`udp:${NAME}:${port}`] }));
    const { socket } = made.datagrams({ name: NAME, port: made.port });
    const back = answers(socket);
    socket.write(frameDatagram(Buffer.from('hello')));
    await vi.waitUntil(() => back.length === 1);
    const stranger = createSocket('udp4');
    opened.push(() => stranger.close());
    stranger.send('forged', made.from[0]!.port, '127.0.0.1');
    made.socket.send('real', made.from[0]!.port, '127.0.0.1');
    await vi.waitUntil(() => back.length === 2);
    expect(back).toEqual(['HELLO', 'real']);
  });

  it.each<[string, (port: number) => NetworkPolicy | NetworkPolicy[], string]>([
    ['a rule of TCP', (port) => ({ allow: [`${NAME}:${port}`] }), 'no_rule'],
    ['public', () => 'public', 'no_rule'],
    ['ask', () => 'ask', 'no_rule'],
    [
      'a rule that the installation does not have',
      (port) => [{ allow: [`udp:${NAME}:${port}`] }, 'packages'],
      'bounded',
    ],
    [
      'a rule of the installation alone',
      (port) => ['public', { base: 'public', allow: [`udp:${NAME}:${port}`] }],
      'no_rule',
    ],
    [
      'a rule for another port',
      (port) => ({ allow: [`udp:${NAME}:${port === 1 ? 2 : port - 1}`] }),
      'no_rule',
    ],
    [
      'a rule that denies its connections',
      (port) => ({ allow: [`udp:${NAME}:${port}`], deny: [`${NAME}:*`] }),
      'deny_rule',
    ],
    [
      'a rule that denies them',
      (port) => ({ allow: [`udp:${NAME}:${port}`], deny: [`udp:*.example.org:${port}`] }),
      'deny_rule',
    ],
  ])('are refused with %s', async (_what, policy, reason) => {
    const made = await open(policy);
    const { socket, refused } = made.datagrams({ name: NAME, port: made.port });
    socket.write(frameDatagram(Buffer.from('out')));
    expect(await refused).toMatchObject({ code: 'permission_denied', details: { reason } });
    expect(attempt(made)).toMatchObject({
      verdict: 'denied',
      reason,
      suggestion: `udp:${NAME}:${made.port}`,
      bytesOut: 0,
    });
    expect(made.got).toEqual([]);
    expect(made.resolved).toEqual([]);
  });

  it('to a name that resolves to what is not public need a rule of addresses for UDP', async () => {
    const only = await open((port) => ({ allow: [`udp:${NAME}:${port}`, '127.0.0.9'] }), '127.0.0.9');
    const refused = only.datagrams({ name: NAME, port: only.port });
    expect(await refused.refused).toMatchObject({ details: { reason: 'address' } });
    const both = await open(
      (port) => ({ allow: [`udp:${NAME}:${port}`, `udp:127.0.0.9:${port}`] }),
      '127.0.0.9',
    );
    const { socket } = both.datagrams({ name: NAME, port: both.port });
    const back = answers(socket);
    socket.write(frameDatagram(Buffer.from('x')));
    await vi.waitUntil(() => back.length === 1);
  });

  it('to an address need a rule of addresses', async () => {
    const made = await open((port) => ({ allow: [`udp:127.0.0.1:${port}`] }));
    const { socket } = made.datagrams({ address: '127.0.0.1', port: made.port });
    const back = answers(socket);
    socket.write(frameDatagram(Buffer.from('x')));
    await vi.waitUntil(() => back.length === 1);
    const other = made.datagrams({ address: '127.0.0.2', port: made.port });
    expect(await other.refused).toMatchObject({ details: { reason: 'no_rule' } });
  });

  it('are cut when the policy changes', async () => {
    const made = await open((port) => ({ allow: [`udp:${NAME}:${port}`] }));
    const { socket, refused } = made.datagrams({ name: NAME, port: made.port });
    const back = answers(socket);
    socket.write(frameDatagram(Buffer.from('x')));
    await vi.waitUntil(() => back.length === 1);
    made.egress.policies.set(made.sandbox, ['public']);
    expect(await refused).toMatchObject({ details: { reason: 'policy_changed' } });
  });

  it('are bounded in flows, in size and in rate', async () => {
    const made = await open((port) => ({ allow: [`udp:${NAME}:${port}`], limits: { connections: 1000 } }));
    const flows = Array.from({ length: 300 }, () => made.datagrams({ name: NAME, port: made.port }));
    await vi.waitUntil(() => made.resolved.length >= 256);
    await vi.waitUntil(() => made.egress.attempts(made.sandbox).length === 300);
    const failed = made.egress.attempts(made.sandbox).filter(({ reason }) => reason === 'limit');
    expect(failed).toHaveLength(44);
    for (const { socket } of flows.slice(1)) socket.destroy();
    const { socket } = flows[0]!;
    answers(socket);
    for (let at = 0; at < 5000; at++) socket.write(frameDatagram(Buffer.from('x')));
    // The target's own socket loses some, so what was sent is counted.
    const sent = () => made.egress.attempts(made.sandbox).find(({ open: is }) => is)!.bytesOut;
    await vi.waitUntil(() => sent() >= 1000);
    await new Promise((done) => setTimeout(done, 100));
    expect(sent()).toBeLessThan(2500);
    socket.write(Buffer.from([0xff, 0xff]));
    await vi.waitUntil(() => made.egress.stats(made.sandbox)!.connections === 0);
    expect(MAX_DATAGRAM).toBeLessThan(0xffff);
  });

  it('end when they are idle, without a refusal', async () => {
    let now = 0;
    const server = await echo();
    const made = world(
      { allow: [`udp:${NAME}:${server.port}`] },
      { clock: { now: () => now, steady: () => now } as never },
    );
    made.names.set(NAME, ['127.0.0.1']);
    const { socket } = made.datagrams({ name: NAME, port: server.port });
    const back = answers(socket);
    const ended = once(socket, 'end');
    socket.write(frameDatagram(Buffer.from('x')));
    await vi.waitUntil(() => back.length === 1);
    now += 31_000;
    await ended;
    expect(made.egress.attempts(made.sandbox)[0]).toMatchObject({ verdict: 'allowed', open: false });
  });

  it('have their ports in the answers of lookups', async () => {
    const { egress, sandbox } = world([{ allow: [`udp:${NAME}:53,853`, 'udp:*.example.org:123'] }, 'public']);
    expect(await egress.lookup(sandbox, { name: NAME })).toMatchObject({
      ports: [80, 443],
      udpPorts: [53, 853, 123],
    });
    const bounded = world([{ allow: [`udp:${NAME}:53,853`] }, { allow: [`udp:${NAME}:53`] }]);
    expect(await bounded.egress.lookup(bounded.sandbox, { name: NAME })).toMatchObject({ udpPorts: [53] });
    const none = world('public');
    expect(await none.egress.lookup(none.sandbox, { name: NAME })).not.toHaveProperty('udpPorts');
  });
});
