/** A guest that says exactly what a test tells it to, in the protocol's own frames over a real socket. */
import { Buffer } from 'node:buffer';
import type { Socket } from 'node:net';
import { decodeCborMap, encodeCbor, type CborMap } from '../cbor.ts';
import { FRAME, HEADER_BYTES, writeHeader } from '../frame.ts';
import { FrameParser } from '../frame-parser.ts';

export interface Frame {
  type: number;
  stream: number;
  channel: number;
  payload: Buffer;
}

export const BOOT = Buffer.alloc(16, 7);

export class ScriptedGuest {
  readonly socket: Socket;
  /** Called with every frame; DATA comes in pieces. */
  onFrame: (frame: Frame) => void = (frame) => this.#arrived(frame);
  readonly #frames: Frame[] = [];
  #waiting: { matches(frame: Frame): boolean; resolve(frame: Frame): void }[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    const parser = new FrameParser({
      control: (type, stream, payload) =>
        this.onFrame({ type, stream, channel: 0, payload: Buffer.from(payload) }),
      data: (stream, channel, piece) =>
        this.onFrame({ type: FRAME.data, stream, channel, payload: Buffer.from(piece) }),
    });
    socket.on('data', (chunk: Buffer) => parser.push(chunk));
    socket.on('error', () => {}); // a test that ends the connection sees it on the server's side
  }

  hello(boot: Buffer = BOOT): void {
    this.send(FRAME.hello, 0, { protocol: 1, version: '0.0.0', boot, features: ['exec'] });
  }

  send(type: number, stream: number, payload: Uint8Array | CborMap = new Uint8Array(0), channel = 0): void {
    const bytes = payload instanceof Uint8Array ? payload : encodeCbor(payload);
    const header = Buffer.alloc(HEADER_BYTES);
    writeHeader(header, 0, { length: bytes.length, type, channel, stream });
    this.socket.write(Buffer.concat([header, bytes]));
  }

  credit(stream: number, bytes: number): void {
    const payload = Buffer.alloc(4);
    payload.writeUInt32BE(bytes);
    this.send(FRAME.credit, stream, payload);
  }

  /** The next frame of this type, of those that no other call has taken. */
  next(type: number): Promise<Frame> {
    const matches = (frame: Frame) => frame.type === type;
    const at = this.#frames.findIndex(matches);
    if (at >= 0) return Promise.resolve(this.#frames.splice(at, 1)[0] as Frame);
    return new Promise((resolve) => this.#waiting.push({ matches, resolve }));
  }

  async opened(): Promise<{ stream: number; request: CborMap }> {
    const frame = await this.next(FRAME.open);
    return { stream: frame.stream, request: decodeCborMap(frame.payload) };
  }

  #arrived(frame: Frame): void {
    const at = this.#waiting.findIndex((one) => one.matches(frame));
    if (at < 0) this.#frames.push(frame);
    else this.#waiting.splice(at, 1)[0]?.resolve(frame);
  }
}
