/** What programs of a sandbox reach, by what means, and how everything else fails. For every backend. */
import { setTimeout as sleep } from 'node:timers/promises';
import { newId, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import type { Egress } from '../../server/src/egress/egress.ts';
import { makeBox, type Box } from './box.ts';
import { egressWorld, sourceChecksum, type EgressWorld } from './egress-world.ts';
import { CONNECT_MANY, DNS, DOWNLOAD, FAILS_AT_ONCE, OWN_SERVER, UPLOAD } from './egress-programs.ts';

export interface EgressPlatform {
  backend: Backend;
  spec: SandboxSpec;
  /** Another server on the same sandboxes, after this one was closed. */
  restart(): Promise<Backend>;
  cleanup(): Promise<void>;
}

export interface EgressTraits {
  /** Every address and port is carried, and not only those of names that were looked up. */
  any: boolean;
  /** The template has curl, node and git. Default true. */
  clients?: boolean;
  /** There is no other user than `user`. */
  oneUser?: boolean;
  /**
   * It has a network card, which somebody else closes: what fails there fails as they say. Names are carried
   * as everywhere.
   */
  card?: boolean;
}

export function egressSuite(
  open: (egress: Egress) => Promise<EgressPlatform>,
  { any, clients = true, oneUser = false, card = false }: EgressTraits,
): void {
  let world: EgressWorld;
  let platform: EgressPlatform;
  let backend: Backend;
  let box: Box;
  const ids: SandboxId[] = [];

  beforeAll(async () => {
    world = await egressWorld();
    platform = await open(world.egress);
    ({ backend } = platform);
    const id = newId('sbx');
    ids.push(id);
    await backend.ensure(id, platform.spec);
    box = makeBox(id, await backend.connect(id), '/home/user');
    await box.write('cert.pem', world.certificate);
  }, 120_000);

  afterAll(async () => {
    for (const id of ids) await backend.remove(id);
    await platform?.cleanup();
    await world?.close();
  }, 60_000);

  /** The output of a line that has to succeed. */
  const sh = async (line: string, user = 'user'): Promise<string> => {
    const { exitCode, stdout, stderr } = await box.run(line, { user });
    expect({ line, exitCode, stderr }).toEqual({ line, exitCode: 0, stderr });
    return stdout.trim();
  };
  const python = (program: string, ...args: (string | number)[]) =>
    sh(`python3 - ${args.join(' ')} <<'END'\n${program}\nEND`);

  /** Ports below 1024 are root's. */
  const ownServer = (port: number, name: string) =>
    sh(`python3 - ${port} ${name} <<'END'\n${OWN_SERVER}\nEND`, oneUser ? 'user' : 'root');

  it.runIf(clients)(
    'curl, python, node and git work by name, without any setting',
    async () => {
      expect(await sh('curl -sS http://web.test/a')).toBe('hello web.test/a');
      expect(await sh('curl -sS http://WEB.test:8080/b')).toBe('hello WEB.test:8080/b');
      expect(await sh('curl -sS --cacert cert.pem https://secure.test/c')).toBe('hello secure.test/c');
      const urllib = 'import urllib.request as r; print(r.urlopen("http://web.test/d").read().decode())';
      expect(await python(urllib)).toBe('hello web.test/d');
      const fetch = 'fetch("http://web.test/e").then((r) => r.text()).then(console.log)';
      expect(await sh(`node -e '${fetch}'`)).toBe('hello web.test/e');
      await sh('rm -rf clone && git clone -q http://git.test/repository.git clone');
      expect(await sh('git -C clone log --format=%s')).toBe('the first commit');
      expect(world.egress.targets.every(({ sandbox }) => sandbox === box.id)).toBe(true);
      expect(world.egress.targets).toContainEqual({ sandbox: box.id, name: 'web.test', port: 8080 });
    },
    60_000,
  );

  it('a connection by name is carried, and says whose it is', async () => {
    const web =
      'import http.client as h; c = h.HTTPConnection("web.test"); c.request("GET", "/f"); print(c.getresponse().read().decode())';
    expect(await python(web)).toBe('hello web.test/f');
    expect(world.egress.targets).toContainEqual({ sandbox: box.id, name: 'web.test', port: 80 });
  });

  it('the name server answers what resolvers ask, over UDP and TCP', async () => {
    const answers = JSON.parse(await python(DNS)) as Record<string, unknown>;
    expect(answers).toMatchObject({
      aaaa: { code: 0, answers: 0 },
      https: { code: 0, answers: 0 },
      absent: { code: 3, answers: 0 },
      tcp: { code: 0, answers: 1 },
      malformed: 1,
      localhost: '127.0.0.1',
      reverse: 'web.test',
    });
    expect(answers['a']).toMatchObject({ code: 0, answers: 1 });
    expect(answers['slowestMs']).toBeLessThan(1_000);
    expect(await sh('getent ahosts web.test | head -1')).toMatch(any ? /^198\.1[89]\./ : /^127\.6[45]\./);
    expect((await box.run('getent hosts absent.test')).exitCode).toBe(2);
    expect(await sh('getent hosts localhost')).toMatch(/localhost/);
  });

  it('what is refused fails at once, and so does everything but TCP', async () => {
    const outcomes = JSON.parse(await python(FAILS_AT_ONCE)) as Record<string, { error: string; ms: number }>;
    expect(Object.keys(outcomes).toSorted()).toEqual(['address', 'dead', 'port', 'udp', 'udpName', 'v6']);
    const ofCard = ['address', 'udp', 'v6'];
    for (const [what, { error, ms }] of Object.entries(outcomes)) {
      if (card && ofCard.includes(what)) continue;
      expect(error).toMatch(/^(ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|EADDRNOTAVAIL|EPERM)$/);
      expect(ms).toBeLessThan(2_000);
    }
  });

  it.runIf(any)('an address that nobody looked up is carried as it is', async () => {
    expect(await sh('curl -sS http://192.0.2.80/x')).toBe('hello 192.0.2.80/x');
    expect(world.egress.targets).toContainEqual({ sandbox: box.id, address: '192.0.2.80', port: 80 });
  });

  it('programs have their own ports, whatever is reached outside', async () => {
    if (any) {
      // Also those that names are reached on, while they are.
      expect(await ownServer(443, 'web.test')).toBe('own 443 outside hello web.test:443/');
      expect(await ownServer(80, 'web.test')).toBe('own 80 outside hello web.test:80/');
    }
    expect(await ownServer(8000, '')).toBe('own 8000');
    const listening = (await box.guest.ports.list()).map(({ port }) => port);
    expect(listening).toEqual([]);
  });

  it('a hundred megabytes arrive unchanged, both ways, and the end of each', async () => {
    expect(await python(DOWNLOAD, 'source.test', 19, 100)).toBe(sourceChecksum(100));
    expect(await python(UPLOAD, 'sink.test', 9, 100)).toBe('same');
  }, 120_000);

  it('a thousand connections at once, and two thousand in turns', async () => {
    expect(await python(CONNECT_MANY, 'echo.test', 7, 1000, 1)).toBe('1000');
    expect(await python(CONNECT_MANY, 'echo.test', 7, 50, 40)).toBe('2000');
    await sleep(100);
    expect(world.egress.sockets.size).toBeLessThan(10);
  }, 180_000);

  it('a program that ends, and a server that ends, end the other side', async () => {
    const hanging = await box.start(
      'exec python3 -c \'import socket; socket.create_connection(("silent.test", 1)).recv(1)\'',
    );
    const before = world.egress.sockets.size;
    for (let tries = 0; world.egress.sockets.size === before && tries < 200; tries++) await sleep(25);
    const [socket] = [...world.egress.sockets].slice(-1);
    expect(socket).toBeDefined();
    await box.guest.signal(hanging.id, 'SIGKILL');
    for (let tries = 0; !socket!.destroyed && tries < 200; tries++) await sleep(25);
    expect(socket!.destroyed).toBe(true);
  });

  it('goes on after the server was away, and fails at once while it is', async () => {
    const loop = `import socket, time, json
seen = []
while True:
  at = time.time()
  try:
    s = socket.create_connection(("echo.test", 7), 5)
    s.settimeout(5)
    s.sendall(b"x")
    seen.append("ok" if s.recv(1) == b"x" else "ended")
  except OSError as error:
    seen.append(type(error).__name__)
  took = time.time() - at
  with open("/tmp/seen", "a") as out: out.write(f"{seen[-1]} {took}\\n")
  time.sleep(0.05)
`;
    await box.write('/tmp/loop.py', loop);
    await (await box.start('exec python3 /tmp/loop.py'))[Symbol.asyncDispose]();
    for (let tries = 0; tries < 100 && (await box.run('grep -q ok /tmp/seen')).exitCode !== 0; tries++)
      await sleep(100);
    await sleep(500);
    await backend.close();
    await sleep(3_000);
    backend = platform.backend = await platform.restart();
    await backend.ensure(box.id, platform.spec);
    box = makeBox(box.id, await backend.connect(box.id), '/home/user');
    await sleep(2_000);
    const lines = (await sh('cat /tmp/seen')).split('\n').map((line) => line.split(' '));
    const words = lines.map(([word]) => word);
    expect(words[0]).toBe('ok');
    expect(words.some((word) => word !== 'ok')).toBe(true);
    expect(words.at(-1)).toBe('ok');
    expect(Math.max(...lines.map(([, seconds]) => Number(seconds)))).toBeLessThan(3);
  }, 60_000);
}
