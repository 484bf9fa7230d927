/**
 * A command that is under way: its output as it comes, its input, its end.
 *
 * Carried by one WebSocket. Leaving it (`detach`, the end of an `await using` block, or a lost
 * connection) does not end the command; `sandbox.attach(id, { offset })` goes on where this stopped.
 */
import {
  CayError,
  shellExitCode,
  type CommandEnd,
  type ExecEvent,
  type OutputChannel,
  type PtySize,
  type Signal,
} from './protocol/index.ts';

export interface Output {
  channel: OutputChannel;
  data: Uint8Array;
}

const CHANNELS: Record<number, OutputChannel> = { 1: 'stdout', 2: 'stderr', 3: 'pty' };

export class Process implements AsyncDisposable {
  readonly id: string;
  readonly pid: number;
  /** Settles when the command has ended. Rejects `unavailable` if the connection is lost before. */
  readonly ended: Promise<CommandEnd>;
  readonly #socket: WebSocket;
  readonly #queue: Output[] = [];
  #wake: (() => void) | undefined;
  #over = false;
  #failure: CayError | undefined;
  #bytes = 0;

  /** @internal Made by `Sandbox.spawn`, `shell` and `attach`. */
  constructor(socket: WebSocket, started: { id: string; pid: number }, offset: number) {
    this.#socket = socket;
    this.#bytes = offset;
    this.id = started.id;
    this.pid = started.pid;
    this.ended = new Promise((resolve, reject) => {
      socket.addEventListener('message', ({ data }: { data: unknown }) => {
        if (typeof data !== 'string') return this.#push(new Uint8Array(data as ArrayBuffer));
        const event = JSON.parse(data) as ExecEvent;
        if (event.type === 'gap') this.#bytes += event.bytes;
        if (event.type === 'end') resolve(event.end);
        if (event.type === 'error') reject((this.#failure = new CayError('unavailable', event.error.message)));
        if (event.type === 'end' || event.type === 'error') this.#finish();
      });
      socket.addEventListener('close', () => {
        if (!this.#over)
          reject(
            (this.#failure = new CayError('unavailable', `The connection to command "${this.id}" was lost`, {
              hint: 'attach again from its offset',
            })),
          );
        this.#finish();
      });
    });
    // Whoever does not ask for the end does not want to hear that it is unknown.
    this.ended.catch(() => {});
  }

  /** Bytes of output received so far, over all channels: where `attach` would go on. */
  get offset(): number {
    return this.#bytes;
  }

  /** Output in order. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined> {
    for (;;) {
      const next = this.#queue.shift();
      if (next) yield next;
      else if (this.#failure) throw this.#failure;
      else if (this.#over) return;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Waits for the end; the code is the one that a shell would show. */
  async wait(): Promise<{ end: CommandEnd; exitCode: number }> {
    const end = await this.ended;
    return { end, exitCode: shellExitCode(end) };
  }

  write(data: string | Uint8Array): void {
    this.#socket.send((typeof data === 'string' ? new TextEncoder().encode(data) : data) as Uint8Array<ArrayBuffer>);
  }

  closeStdin(): void {
    this.#socket.send(JSON.stringify({ closeStdin: true }));
  }

  resize(size: PtySize): void {
    this.#socket.send(JSON.stringify({ resize: size }));
  }

  kill(signal: Signal = 'SIGKILL'): void {
    this.#socket.send(JSON.stringify({ signal }));
  }

  /** Lets go; the command runs on. */
  detach(): void {
    this.#over = true;
    this.#socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }

  #push(frame: Uint8Array): void {
    const channel = CHANNELS[frame[0] ?? 0];
    if (!channel) return;
    this.#bytes += frame.length - 1;
    this.#queue.push({ channel, data: frame.subarray(1) });
    this.#wake?.();
  }

  #finish(): void {
    this.#over = true;
    this.#wake?.();
    this.#socket.close();
  }
}

/** Opens a command's stream and waits until the server says that it has started. */
export async function openProcess(socket: WebSocket, opening: Record<string, unknown>, offset = 0): Promise<Process> {
  const started = new Promise<{ id: string; pid: number }>((resolve, reject) => {
    socket.addEventListener('message', function first({ data }: { data: unknown }) {
      socket.removeEventListener('message', first);
      const event = JSON.parse(String(data)) as ExecEvent & { error?: { code: never; message: string } };
      if (event.type === 'started') resolve(event);
      else if (event.type === 'error') reject(CayError.fromWire(event.error as never));
      else reject(new CayError('internal', `The server began a command's stream with "${event.type}"`));
    });
    socket.addEventListener('close', () => reject(new CayError('unavailable', 'The connection was lost before the command started')), {
      once: true,
    });
  });
  let process: Process | undefined;
  // The Process must be listening when the message after `started` arrives, which may be in the same turn.
  const made = started.then((event) => (process = new Process(socket, event, offset)));
  socket.send(JSON.stringify(opening));
  await made;
  return process!;
}
