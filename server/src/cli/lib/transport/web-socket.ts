/**
 * A WebSocket client over `node:http`, as far as our own server needs it: no extensions, whole
 * messages of bounded size. It loads in a millisecond, and can be paused while a reader is slow.
 */
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { decodeFrames, encodeFrame, OPCODES, type Frame } from './web-socket-frame.ts';

type Listener = (event: never) => void;

const CLOSE_MS = 1000;

export class ThinWebSocket {
  /** Binary messages are always given as an `ArrayBuffer`. */
  binaryType = 'arraybuffer';
  readonly OPEN = 1;
  readyState = 0;
  readonly #emitter = new EventEmitter();
  #socket: Socket | undefined;
  #held: Buffer = Buffer.alloc(0);
  #paused = false;

  constructor(url: string, protocols: string[]) {
    const secure = url.startsWith('wss:');
    const { request } = process.getBuiltinModule(secure ? 'node:https' : 'node:http');
    const { randomBytes } = process.getBuiltinModule('node:crypto');
    const asked = request(url.replace(/^ws/, 'http'), {
      headers: {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': randomBytes(16).toString('base64'),
        'sec-websocket-protocol': protocols.join(', '),
      },
    });
    asked.on('upgrade', (_, socket: Socket, head) => this.#open(socket, head));
    asked.on('response', (response) => {
      response.resume();
      this.#end(1006, `${response.statusCode}`);
    });
    asked.on('error', () => this.#end(1006, ''));
    asked.end();
  }

  get bufferedAmount(): number {
    return this.#socket?.writableLength ?? 0;
  }

  addEventListener(type: string, listener: Listener, { once = false }: { once?: boolean } = {}): void {
    this.#emitter[once ? 'once' : 'on'](type, listener as () => void);
  }

  removeEventListener(type: string, listener: Listener): void {
    this.#emitter.off(type, listener as () => void);
  }

  /** `done` is called when it has left this process. */
  send(data: string | Uint8Array, done?: () => void): void {
    if (this.readyState !== this.OPEN) return;
    this.#socket!.write(
      encodeFrame(typeof data === 'string' ? OPCODES.text : OPCODES.binary, Buffer.from(data as Uint8Array)),
      done,
    );
  }

  pause(): void {
    this.#paused = true;
    this.#socket?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#take(Buffer.alloc(0));
    if (!this.#paused) this.#socket?.resume();
  }

  close(code = 1000): void {
    if (this.readyState !== this.OPEN) return;
    this.readyState = 2;
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.#socket!.end(encodeFrame(OPCODES.close, payload));
    setTimeout(() => this.#socket?.destroy(), CLOSE_MS).unref();
  }

  #open(socket: Socket, head: Buffer): void {
    this.#socket = socket;
    this.readyState = this.OPEN;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    socket.on('error', () => this.#end(1006, ''));
    socket.on('close', () => this.#end(1006, ''));
    this.#emitter.emit('open', {});
    if (head.length > 0) this.#take(head);
  }

  /** A reader that pauses in between leaves what has arrived already for later. */
  #take(chunk: Buffer): void {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const frames = decodeFrames(this.#held);
    try {
      for (const { frame, rest } of frames) {
        this.#held = rest;
        this.#deal(frame);
        if (this.#paused) return;
      }
    } catch {
      this.#socket?.destroy();
    }
  }

  #deal({ opcode, payload }: Frame): void {
    if (opcode === OPCODES.text) this.#emitter.emit('message', { data: payload.toString() });
    else if (opcode === OPCODES.binary) {
      this.#emitter.emit('message', {
        data: payload.buffer.slice(payload.byteOffset, payload.byteOffset + payload.length),
      });
    } else if (opcode === OPCODES.ping) this.#socket?.write(encodeFrame(OPCODES.pong, payload));
    else if (opcode === OPCODES.close) {
      const code = payload.length >= 2 ? payload.readUInt16BE() : 1005;
      if (this.readyState === this.OPEN)
        this.#socket?.end(encodeFrame(OPCODES.close, payload.subarray(0, 2)));
      this.#end(code, payload.subarray(2).toString());
    }
  }

  #end(code: number, reason: string): void {
    if (this.readyState === 3) return;
    const opened = this.readyState !== 0;
    this.readyState = 3;
    if (!opened && this.#emitter.listenerCount('error') > 0) this.#emitter.emit('error', {});
    this.#emitter.emit('close', { code, reason });
    if (code === 1006) this.#socket?.destroy();
  }
}
