/** TLS on connections that are allowed: the name in the hello must be the name that was connected to. */
import type { ConnectionOptions } from 'node:tls';
import { clientHello, extension, record, serverName } from '../client-hello.ts';
import {
  blocked,
  broken,
  type CaseWorld,
  type EnforcementCase,
  open,
  skipped,
  works,
} from '../enforcement-case.ts';
import { handshake, sendPieces } from '../relayed-tls.ts';

const NAME = 'web.report.example';
const OTHER = 'other.report.example';

async function shakeHands(world: CaseWorld, name: string, options: ConnectionOptions): Promise<string> {
  const socket = await handshake(world, name, options);
  if (typeof socket === 'string') return socket;
  const subject = socket.getPeerCertificate().subject?.CN;
  socket.destroy();
  return `secure as ${String(subject ?? 'nobody')}`;
}

/** Sends bytes, and looks whether the target saw a hello for the marked name. */
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
    const said = await sendPieces(world, NAME, bytes(marked));
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
    const said = await shakeHands(world, NAME, options(marked));
    if (world.target.saw(`sni ${marked}`) || said.startsWith('secure')) return open(said);
    return blocked(`${said}; ${world.target.arrivals() - before} connections`);
  },
});
const allowed = (id: string, title: string, name: string): EnforcementCase => ({
  id: `tls.${id}`,
  title,
  async run(world) {
    if (!world.carries) return skipped('this server carries nothing out');
    const said = await shakeHands(world, name, {});
    return said.startsWith('secure') ? works(said) : broken(said);
  },
});

const pieces = (bytes: Buffer, size: number) =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
    bytes.subarray(at * size, (at + 1) * size),
  );

export const TLS: readonly EnforcementCase[] = [
  allowed('allowed', 'TLS with the name that was connected to', NAME),
  allowed('terminated', 'TLS that the server looks into, where a rule has conditions', 'api.report.example'),
  mismatch('other-name', 'another name in the hello (SNI)', (marked) => ({ servername: marked })),
  mismatch('no-name', 'a hello without a name', () => ({ servername: '' })),
  mismatch('old-version', 'another name by TLS 1.2', (marked) => ({
    servername: marked,
    maxVersion: 'TLSv1.2',
  })),
  mismatch('below', 'a name below the one that was connected to', (marked) => ({
    servername: `${marked.split('.')[0]}.${NAME}`,
  })),
  byHand('two-names', 'two names in one hello', (marked) => [
    record(clientHello([serverName(NAME, marked)])),
  ]),
  byHand('two-lists', 'two lists of names in one hello', (marked) => [
    record(clientHello([serverName(NAME), serverName(marked)])),
  ]),
  byHand('split-records', 'a hello in records of seven bytes', (marked) =>
    pieces(clientHello([serverName(marked)]), 7).map(record),
  ),
  byHand('split-segments', 'a hello in pieces of eleven bytes', (marked) =>
    pieces(record(clientHello([serverName(marked)])), 11),
  ),
  byHand('encrypted-other', 'another name outside of an encrypted hello (ECH)', (marked) => [
    record(clientHello([serverName(marked), extension(0xfe0d, Buffer.alloc(64, 1))])),
  ]),
  byHand('zero-byte', 'a name with a zero byte', (marked) => [
    record(clientHello([serverName(`${NAME}\0.${marked}`)])),
  ]),
  byHand('huge', 'a hello that never ends', (marked) => [
    record(Buffer.concat([Buffer.from([1, 255, 255, 255]), Buffer.alloc(16_000, 1)])),
    record(Buffer.from(marked)),
  ]),
];
