/**
 * A guest that lies. Root in a sandbox can do that: it dials the socket by which the guest reaches the
 * server, and the newest connection is the one that counts. Here the test dials it from outside, once the
 * true guest cannot dial any more.
 */
import { readdir, stat } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { decodeCborMap, encodeCbor, type CborMap } from '../../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, PROTOCOL, writeHeader } from '../../../server/src/guest/frame.ts';
import { FrameParser } from '../../../server/src/guest/frame-parser.ts';
import type { Target } from './target.ts';

export interface Asked {
  op: string;
  request: CborMap;
  stream: number;
}

export interface LyingGuest {
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

/** Takes the place of the guest of a sandbox. */
export async function lieFor(target: Target, sandbox: string): Promise<LyingGuest> {
  const socketPath = await newestSocket(target.dataDir);
  await target.alice.exec(sandbox, ['python3', '-c', MUTE], { user: 'root' });
  return dial(socketPath);
}

/** Of the sandbox that was started last. */
export async function newestSocket(dataDir: string): Promise<string> {
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

export async function dial(socketPath: string, hello: CborMap = {}): Promise<LyingGuest> {
  const socket = await connected(socketPath);
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

/** Who dials too often finds nobody listening for a while. */
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
  readonly #socket: Socket;
  #heard: (() => void) | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    // Many answers may wait for room at once.
    socket.setMaxListeners(0);
    const parser = new FrameParser({
      control: (type, stream, payload) => {
        if (type === FRAME.hello) this.#heard?.();
        if (type !== FRAME.open) return;
        const { op, ...request } = decodeCborMap(payload);
        this.onAsked({ op: op as string, request, stream });
      },
      data: () => {},
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
