/**
 * A guest that lies. Root in a sandbox can do that: the socket between the server and its guest is in the
 * sandbox, and the newest connection is the one that counts. Here the test takes it over from outside, once
 * the true guest cannot use it any more.
 */
import { execFile } from 'node:child_process';
import { readdir, rm, stat } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { LABELS, SOCKET_PATH } from '../../../server/src/backends/docker/container-config.ts';
import { decodeCborMap, encodeCbor, type CborMap } from '../../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, PROTOCOL, writeHeader } from '../../../server/src/guest/frame.ts';
import { FrameParser } from '../../../server/src/guest/frame-parser.ts';
import type { Target, Tenant } from './target.ts';

const run = promisify(execFile);

export interface Asked {
  op: string;
  request: CborMap;
  stream: number;
}

export interface LyingGuest {
  /** What it does with frames of the server other than questions. */
  onFrame(type: number, stream: number): void;
  /** What it does when it is asked for something. */
  onAsked(asked: Asked): void;
  message(stream: number, map: CborMap): void;
  data(stream: number, bytes: Uint8Array, channel?: number): void;
  end(stream: number): void;
  /**
   * Sends these bytes as they are. Resolves when there is room for more; rejects when the server has hung up.
   */
  raw(bytes: Uint8Array): Promise<void>;
  readonly ended: boolean;
  close(): void;
}

/** Keeps the first process of the sandbox from opening anything, its socket to the server among it. */
const MUTE = 'import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))';

/** The way by which the guest of a sandbox and the server reach each other, in other hands. */
export interface TakenLink {
  /** A new connection to the server, which then counts as the guest's. The connection before is cut off. */
  next(hello?: CborMap): Promise<LyingGuest>;
  close(): void;
}

/**
 * Takes the place of the guest of a sandbox, by default of Alice's. On this machine guests dial the server,
 * and so does the liar. In a container of Docker's the server dials a socket inside, and the liar listens
 * there instead.
 */
export async function takeLink(
  target: Target,
  sandbox: string,
  owner: Tenant = target.alice,
): Promise<TakenLink> {
  if (target.docker) return listenInstead(target, sandbox, owner);
  const socketPath = await newestSocket(target.dataDir);
  await owner.exec(sandbox, ['python3', '-c', MUTE], { user: 'root' });
  return { next: (hello) => dial(socketPath, hello), close: () => {} };
}

/** Ends the programs that carry bytes between the server and the guest, this command's own among them. */
const CUT = `
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        if b'bridge' in open(f'/proc/{pid}/cmdline', 'rb').read().split(b'\\0')[:2]:
            os.kill(int(pid), 9)
    except OSError:
        pass
`;

async function listenInstead(target: Target, sandbox: string, owner: Tenant): Promise<TakenLink> {
  const engine = async (...args: string[]) =>
    (await run('docker', ['--host', target.docker!.host, ...args])).stdout.trim();
  const container = await engine('ps', '--quiet', '--filter', `label=${LABELS.sandbox}=${sandbox}`);
  const pid = await engine('inspect', '--format', '{{.State.Pid}}', container);
  const path = `/proc/${pid}/root${SOCKET_PATH}`;
  await rm(path);
  const waiting: ((socket: Socket) => void)[] = [];
  const come: Socket[] = [];
  let current: Socket | undefined;
  const server = createServer((socket) => {
    socket.on('error', () => {});
    const first = waiting.shift();
    if (first) first(socket);
    else come.push(socket);
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  // The answer to this is lost with what carries it.
  await owner
    .call('POST', `/v1/sandboxes/${sandbox}/exec`, {
      body: { argv: ['python3', '-c', CUT], user: 'root' },
      signal: AbortSignal.timeout(2_000),
    })
    .catch(() => {});
  return {
    async next(hello) {
      current?.destroy();
      let socket = come.shift();
      while (socket?.destroyed) socket = come.shift();
      current = socket ?? (await new Promise<Socket>((resolve) => waiting.push(resolve)));
      return greet(current, hello);
    },
    close() {
      server.close();
      current?.destroy();
      for (const socket of come) socket.destroy();
    },
  };
}

/** Of the sandbox that was started last. */
async function newestSocket(dataDir: string): Promise<string> {
  const instances = join(dataDir, 'engine/instances');
  const found = (await readdir(instances)).map(async (name) => {
    const path = join(instances, name, 'run/guest.sock');
    return {
      path,
      atMs: await stat(path).then(
        ({ ctimeMs }) => ctimeMs,
        () => 0,
      ),
    };
  });
  const newest = (await Promise.all(found))
    .filter(({ atMs }) => atMs > 0)
    .toSorted((a, b) => b.atMs - a.atMs)[0];
  if (!newest) throw new Error(`no guest listens below ${instances}`);
  return newest.path;
}

async function dial(socketPath: string, hello?: CborMap): Promise<LyingGuest> {
  return greet(await connected(socketPath), hello);
}

async function greet(socket: Socket, hello: CborMap = {}): Promise<LyingGuest> {
  const guest = new Liar(socket);
  const heard = guest.heard();
  guest.frame(
    FRAME.hello,
    0,
    encodeCbor({ protocol: PROTOCOL, version: '0', boot: Buffer.alloc(16, 7), features: [], ...hello }),
  );
  await heard;
  return guest;
}

/** A guest that dials too often is refused for a while. */
async function connected(socketPath: string): Promise<Socket> {
  for (;;) {
    const socket = connect(socketPath);
    const opened = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true));
      // The server may hang up whenever it likes.
      socket.on('error', () => resolve(false));
    });
    if (opened) return socket;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

class Liar implements LyingGuest {
  onAsked: (asked: Asked) => void = () => {};
  onFrame: (type: number, stream: number) => void = () => {};
  readonly #socket: Socket;
  #heard: (() => void) | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    // Many answers may wait for room at once.
    socket.setMaxListeners(0);
    const parser = new FrameParser({
      control: (type, stream, payload) => {
        if (type === FRAME.hello) this.#heard?.();
        if (type !== FRAME.open) return this.onFrame(type, stream);
        const { op, ...request } = decodeCborMap(payload);
        this.onAsked({ op: op as string, request, stream });
      },
      data: (stream) => this.onFrame(FRAME.data, stream),
    });
    socket.on('data', (chunk: Buffer) => parser.push(chunk));
  }

  /** Resolves when the server has said hello, or has hung up. */
  heard(): Promise<void> {
    return new Promise((resolve) => {
      this.#heard = resolve;
      this.#socket.once('close', () => resolve());
    });
  }

  frame(type: number, stream: number, payload: Uint8Array, channel = 0): void {
    const header = Buffer.alloc(HEADER_BYTES);
    writeHeader(header, 0, { length: payload.length, type, channel, stream });
    if (!this.ended) this.#socket.write(Buffer.concat([header, payload]));
  }

  message(stream: number, map: CborMap): void {
    this.frame(FRAME.message, stream, encodeCbor(map));
  }

  data(stream: number, bytes: Uint8Array, channel = 0): void {
    this.frame(FRAME.data, stream, bytes, channel);
  }

  end(stream: number): void {
    this.frame(FRAME.end, stream, new Uint8Array(0));
  }

  async raw(bytes: Uint8Array): Promise<void> {
    if (this.ended) throw new Error('the server has hung up');
    if (this.#socket.write(bytes)) return;
    await new Promise<void>((resolve, reject) => {
      this.#socket.once('drain', resolve);
      this.#socket.once('close', () => reject(new Error('the server has hung up')));
    });
  }

  get ended(): boolean {
    return this.#socket.destroyed || this.#socket.closed;
  }

  close(): void {
    this.#socket.destroy();
  }
}
