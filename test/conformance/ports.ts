import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import type { Connection, PortEvent } from '../../server/src/guest/guest.ts';
import { gather, noise, until, within, type Box } from './box.ts';
import { hasProgram, rejects, type CaseContext, type Suite } from './suite.ts';

const PYTHON = `
import socket, sys, threading
def serve(c):
    while True:
        d = c.recv(65536)
        if not d: break
        c.sendall(d)
    c.shutdown(socket.SHUT_WR)
    c.close()
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(64)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`;

const PERL = `
use IO::Socket::INET; $SIG{CHLD} = "IGNORE";
my $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 64, ReuseAddr => 1) or die;
while (my $c = $s->accept) { if (!fork) { while (sysread($c, my $d, 65536)) { my $o = 0; while ($o < length $d) { $o += syswrite($c, $d, 65536, $o) } } shutdown($c, 1); exit } close $c }
`;

let nextPort = 20_000;

/** Starts an echo server and waits until it listens. */
export async function echoServer(suite: Suite, box: Box, context: CaseContext) {
  const port = nextPort++;
  let argv = suite.platform.echoServer?.(port);
  if (!argv && (await hasProgram(box, 'python3'))) argv = ['python3', '-c', PYTHON, `${port}`];
  if (!argv && (await hasProgram(box, 'perl'))) argv = ['perl', '-e', PERL, `${port}`];
  if (!argv) return context.skip('the image has neither python3 nor perl to listen with');
  const handle = await box.start(argv);
  // How soon an interpreter starts on a busy machine is not what is tested.
  const listens = async () => (await box.guest.ports.list()).some((each) => each.port === port);
  await until(`port ${port} listens`, listens, 30_000);
  return { port, handle, stop: () => box.guest.signal(handle.id, 'SIGKILL') };
}

async function exchange(connection: Connection, data: Uint8Array): Promise<Buffer> {
  const sending = (async () => {
    for (let at = 0; at < data.length; at += 100_000) await connection.write(data.subarray(at, at + 100_000));
    await connection.end();
  })();
  const got = await gather(connection.readable);
  await sending;
  return got;
}

export function portCases(suite: Suite): void {
  suite.share();

  suite.inBox('connect() carries bytes to a server inside and back', ['ports'], async (box, context) => {
    const server = await echoServer(suite, box, context);
    const connection = await box.guest.ports.connect(server.port);
    expect((await exchange(connection, Buffer.from('hello\u0000\u00ff'))).toString()).toBe(
      'hello\u0000\u00ff',
    );
    await connection[Symbol.asyncDispose]();
    await server.stop();
  });

  suite.inBox(
    'a half-closed connection still carries what the other side sends',
    ['ports'],
    async (box, context) => {
      const server = await echoServer(suite, box, context);
      const connection = await box.guest.ports.connect(server.port);
      await connection.write(Buffer.from('said before the end'));
      await connection.end();
      expect((await within(10_000, 'the rest', gather(connection.readable))).toString()).toBe(
        'said before the end',
      );
      await server.stop();
    },
  );

  suite.inBox('20 MB go both ways at once unchanged', ['ports'], async (box, context) => {
    const server = await echoServer(suite, box, context);
    const bytes = noise(20 * 1024 * 1024, 21);
    const got = await exchange(await box.guest.ports.connect(server.port), bytes);
    expect(got.length).toBe(bytes.length);
    expect(createHash('sha256').update(got).digest('hex')).toBe(
      createHash('sha256').update(bytes).digest('hex'),
    );
    await server.stop();
  });

  suite.inBox('twenty connections at once do not mix', ['ports'], async (box, context) => {
    const server = await echoServer(suite, box, context);
    await Promise.all(
      Array.from({ length: 20 }, async (_, at) => {
        const bytes = noise(50_000, at + 1);
        expect((await exchange(await box.guest.ports.connect(server.port), bytes)).equals(bytes)).toBe(true);
      }),
    );
    await server.stop();
  });

  suite.inBox('a connection that is not read does not hold up another', ['ports'], async (box, context) => {
    const server = await echoServer(suite, box, context);
    const stuck = await box.guest.ports.connect(server.port);
    const flood = (async () => {
      for (let round = 0; round < 200; round++) await stuck.write(Buffer.alloc(65_536));
    })();
    flood.catch(() => {});
    expect(
      (
        await within(
          10_000,
          'the other',
          exchange(await box.guest.ports.connect(server.port), Buffer.from('quick')),
        )
      ).toString(),
    ).toBe('quick');
    await stuck[Symbol.asyncDispose]();
    await server.stop();
  });

  suite.inBox('connect() to a port without a listener is unavailable', ['ports'], async (box) => {
    await rejects(box.guest.ports.connect(1), 'unavailable');
  });

  suite.inBox('connect() to what is no port is invalid_argument', ['ports'], async (box) => {
    for (const port of [0, -1, 65_536, 1.5, Number.NaN])
      await rejects(box.guest.ports.connect(port), 'invalid_argument');
  });

  suite.inBox('list() has the port and its address while it listens', ['ports'], async (box, context) => {
    const server = await echoServer(suite, box, context);
    expect(await box.guest.ports.list()).toContainEqual({ port: server.port, address: '127.0.0.1' });
    await server.stop();
    await until(
      'it is gone',
      async () => !(await box.guest.ports.list()).some(({ port }) => port === server.port),
    );
  });

  suite.inBox('watch() tells what listens, what opens and what closes', ['ports'], async (box, context) => {
    const before = await echoServer(suite, box, context);
    const aborter = new AbortController();
    const events: PortEvent[] = [];
    const reading = (async () => {
      for await (const event of box.guest.ports.watch({ signal: aborter.signal })) events.push(event);
    })().catch(() => {});
    const saw = (type: string, port: number) => () =>
      events.some((event) => event.type === type && event.port === port);
    await until('the port that listens already was seen', saw('opened', before.port));
    const after = await echoServer(suite, box, context);
    await until('the new port was seen', saw('opened', after.port));
    await after.stop();
    await until('its end was seen', saw('closed', after.port));
    aborter.abort();
    await within(5000, 'the end of the watch', reading);
    await before.stop();
  });

  suite.inBox('the end of the server is the end of the connection', ['ports'], async (box, context) => {
    const server = await echoServer(suite, box, context);
    const connection = await box.guest.ports.connect(server.port);
    await connection.write(Buffer.from('x'));
    const reading = gather(connection.readable).catch(() => Buffer.alloc(0));
    await server.stop();
    await within(10_000, 'the end of the connection', reading);
  });
}
