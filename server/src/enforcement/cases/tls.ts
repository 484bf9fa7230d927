/** TLS on connections that are allowed: the name in the hello must be the name that was connected to. */
import type { Duplex } from 'node:stream';
import { connect, type ConnectionOptions } from 'node:tls';
import {
  blocked,
  broken,
  type CaseWorld,
  type EnforcementCase,
  open,
  skipped,
  works,
} from '../enforcement-case.ts';

const NAME = 'web.report.example';
const OTHER = 'other.report.example';

const u16 = (value: number) => Buffer.from([value >> 8, value & 255]);
const sized = (bytes: Buffer) => Buffer.concat([u16(bytes.length), bytes]);
const extension = (kind: number, body: Buffer) => Buffer.concat([u16(kind), sized(body)]);
const serverName = (...names: string[]) =>
  extension(
    0,
    sized(
      Buffer.concat(
        names.map((name) => Buffer.concat([Buffer.from([0]), sized(Buffer.from(name, 'latin1'))])),
      ),
    ),
  );

/** A hello by hand, for what no library would send. */
function hello(extensions: readonly Buffer[]): Buffer {
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(32, 7),
    Buffer.from([0]),
    sized(Buffer.concat([u16(0x1301), u16(0xc02f), u16(0x009c)])),
    Buffer.from([1, 0]),
    sized(Buffer.concat(extensions)),
  ]);
  return Buffer.concat([Buffer.from([1, 0]), u16(body.length), body]);
}
const record = (fragment: Buffer) => Buffer.concat([Buffer.from([0x16, 3, 1]), sized(fragment)]);

async function handshake(world: CaseWorld, options: ConnectionOptions & { name?: string }): Promise<string> {
  const end = await world.probe.relay(options.name ?? NAME, world.target.port);
  if (typeof end === 'string') return end;
  return new Promise((resolve) => {
    const socket = connect({ ...options, socket: end as Duplex, rejectUnauthorized: false });
    const done = (text: string) => {
      clearTimeout(timer);
      socket.destroy();
      end.destroy();
      resolve(text);
    };
    const timer = setTimeout(() => done('no answer'), 4000);
    socket.on('error', (error) => done(error.message.slice(0, 80)));
    socket.on('close', () => done('closed'));
    socket.on('secureConnect', () =>
      done(`secure as ${String(socket.getPeerCertificate().subject?.CN ?? 'nobody')}`),
    );
  });
}

/** Sends records, and looks whether the target saw a hello for `name`. */
const byHand = (
  id: string,
  title: string,
  bytes: (marked: string) => readonly Buffer[],
): EnforcementCase => ({
  id: `tls.${id}`,
  title,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const marked = `${world.target.word()}.${OTHER}`;
    const end = await world.probe.relay(NAME, world.target.port);
    if (typeof end === 'string') return blocked(end);
    const ended = new Promise<string>((resolve) => {
      setTimeout(() => resolve('no answer'), 2500).unref();
      end.once('data', (chunk: Buffer) => resolve(chunk[0] === 0x15 ? 'an alert' : 'an answer'));
      end.once('end', () => resolve('closed'));
    });
    for (const piece of bytes(marked)) {
      if (!end.destroyed) end.write(piece);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const said = await ended;
    end.destroy();
    return world.target.saw(marked) ? open(`the target got it (${said})`) : blocked(said);
  },
});
const mismatch = (
  id: string,
  title: string,
  options: (marked: string) => ConnectionOptions,
): EnforcementCase => ({
  id: `tls.${id}`,
  title,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const marked = `${world.target.word()}.report.example`;
    const before = world.target.arrivals();
    const said = await handshake(world, options(marked));
    if (world.target.saw(`sni ${marked}`) || said.startsWith('secure')) return open(said);
    return blocked(`${said}; ${world.target.arrivals() - before} connections`);
  },
});
const allowed = (
  id: string,
  title: string,
  options: ConnectionOptions & { name?: string },
): EnforcementCase => ({
  id: `tls.${id}`,
  title,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const said = await handshake(world, options);
    return said.startsWith('secure') ? works(said) : broken(said);
  },
});

const pieces = (bytes: Buffer, size: number) =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
    bytes.subarray(at * size, (at + 1) * size),
  );

export const TLS: readonly EnforcementCase[] = [
  allowed('allowed', 'TLS with the name that was connected to', { servername: NAME }),
  allowed('terminated', 'TLS that the server looks into, where a rule has conditions', {
    servername: 'api.report.example',
    name: 'api.report.example',
  }),
  mismatch('other-name', 'another name in the hello (SNI)', (marked) => ({ servername: marked })),
  mismatch('no-name', 'a hello without a name', () => ({ servername: '' })),
  mismatch('old-version', 'another name by TLS 1.2', (marked) => ({
    servername: marked,
    maxVersion: 'TLSv1.2',
  })),
  mismatch('below', 'a name below the one that was connected to', (marked) => ({
    servername: `${marked.split('.')[0]}.${NAME}`,
  })),
  byHand('two-names', 'two names in one hello', (marked) => [record(hello([serverName(NAME, marked)]))]),
  byHand('two-lists', 'two lists of names in one hello', (marked) => [
    record(hello([serverName(NAME), serverName(marked)])),
  ]),
  byHand('split-records', 'a hello in records of seven bytes', (marked) =>
    pieces(hello([serverName(marked)]), 7).map(record),
  ),
  byHand('split-segments', 'a hello in pieces of eleven bytes', (marked) =>
    pieces(record(hello([serverName(marked)])), 11),
  ),
  byHand('encrypted-other', 'another name outside of an encrypted hello (ECH)', (marked) => [
    record(hello([serverName(marked), extension(0xfe0d, Buffer.alloc(64, 1))])),
  ]),
  byHand('zero-byte', 'a name with a zero byte', (marked) => [
    record(hello([serverName(`${NAME}\0.${marked}`)])),
  ]),
  byHand('huge', 'a hello that never ends', (marked) => [
    record(Buffer.concat([Buffer.from([1, 255, 255, 255]), Buffer.alloc(16_000, 1)])),
    record(Buffer.from(marked)),
  ]),
];
