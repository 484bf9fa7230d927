import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { openClock } from './clock.ts';
import { nameResolver } from './name-resolver.ts';

const opened: (() => unknown)[] = [];
afterEach(() => {
  for (const close of opened.splice(0)) close();
});

/** A name server that knows some names. It speaks DNS over UDP on loopback. */
async function nameServer(
  names: Record<string, { four?: string[]; six?: string[] }>,
): Promise<{ address: string; asked: string[] }> {
  const asked: string[] = [];
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => {
    let at = 12;
    const labels: string[] = [];
    while (query[at] !== 0) {
      labels.push(query.subarray(at + 1, at + 1 + query[at]!).toString());
      at += query[at]! + 1;
    }
    const type = query.readUInt16BE(at + 1);
    const name = labels.join('.');
    asked.push(`${name} ${type}`);
    const known = names[name];
    if (known === undefined && name.startsWith('silent')) return;
    const records = ((type === 1 ? known?.four : known?.six) ?? []).map((address) => {
      const data =
        type === 1
          ? Buffer.from(address.split('.').map(Number))
          : Buffer.from(
              address
                .split(':')
                .map((group) => group.padStart(4, '0'))
                .join(''),
              'hex',
            );
      return Buffer.concat([Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 30, 0, data.length]), data]);
    });
    const head = Buffer.from(query.subarray(0, 12));
    head.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
    head.writeUInt16BE(records.length, 6);
    head.writeUInt16BE(0, 10);
    socket.send(Buffer.concat([head, query.subarray(12, at + 5), ...records]), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  opened.push(() => socket.close());
  return { address: `127.0.0.1:${(socket.address() as AddressInfo).port}`, asked };
}

describe('resolving', () => {
  const clock = openClock();

  it('gives addresses of both families, once each, and keeps them for a while', async () => {
    const { address, asked } = await nameServer({
      'a.example.org': {
        four: ['192.0.2.1', '192.0.2.1', '192.0.2.2'],
        six: ['2001:db8:0:0:0:0:0:1', '0:0:0:0:0:ffff:c000:0203'],
      },
    });
    const resolver = nameResolver({ clock, servers: [address], hostsFile: '/dev/null' });
    const addresses = ['192.0.2.1', '192.0.2.2', '192.0.2.3', '2001:db8::1'];
    expect(await resolver.resolve('a.example.org')).toEqual(addresses);
    expect(await resolver.resolve('a.example.org')).toEqual(addresses);
    expect(asked).toHaveLength(2);
  });

  it('rejects names that are not there, and asks again a moment later', async () => {
    const { address } = await nameServer({});
    const resolver = nameResolver({ clock, servers: [address], hostsFile: '/dev/null' });
    await expect(resolver.resolve('none.example.org')).rejects.toThrow('ENOTFOUND');
  });

  it('gives up on a silent server', async () => {
    const { address } = await nameServer({});
    const resolver = nameResolver({ clock, servers: [address], timeoutMs: 50, hostsFile: '/dev/null' });
    await expect(resolver.resolve('silent.example.org')).rejects.toThrow('ETIMEOUT');
  });

  it('honours the hosts file', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cay-hosts-'));
    opened.push(() => rmSync(directory, { recursive: true }));
    const file = join(directory, 'hosts');
    writeFileSync(
      file,
      '# comment\n10.1.2.3 db.example.org DB2.example.org # more\n::1 db.example.org\nbad line\n',
    );
    const resolver = nameResolver({ clock, servers: ['127.0.0.1:9'], hostsFile: file });
    expect(await resolver.resolve('db.example.org')).toEqual(['10.1.2.3', '::1']);
    expect(await resolver.resolve('db2.example.org')).toEqual(['10.1.2.3']);
  });

  it('looks up a bounded number of names at once for one asker, and others go on', async () => {
    const { address } = await nameServer({ 'known.example.org': { four: ['192.0.2.1'] } });
    const resolver = nameResolver({ clock, servers: [address], timeoutMs: 1000, hostsFile: '/dev/null' });
    const [greedy, other] = [{}, {}];
    const slow = Array.from({ length: 300 }, (_, at) => resolver.resolve(`silent${at}.example.org`, greedy));
    const failures = Promise.all(slow.map((one) => one.then(String, (error: Error) => error.message)));
    // The socket of the name server above loses what comes all at once.
    await sleep(200);
    expect(await resolver.resolve('known.example.org', other)).toEqual(['192.0.2.1']);
    const messages = await failures;
    expect(messages.filter((message) => message.includes('too many'))).toHaveLength(300 - 256);
    // Its places are free again.
    expect(await resolver.resolve('known.example.org', greedy)).toEqual(['192.0.2.1']);
  });
});
