/**
 * A command that is under way: its output as it comes, its input, its end.
 *
 * Carried by one WebSocket. Leaving it (`detach`, the end of an `await using` block, or a lost
 * connection) does not end the command; `sandbox.attach(id, { offset })` goes on where this stopped.
 */
import { CayError, isErrorCode, type WireError } from './protocol/error.ts';
import { shellExitCode } from './protocol/exit-code.ts';
import type {
  CommandEnd,
  EgressDenial,
  ExecEvent,
  OutputChannel,
  PtySize,
  Signal,
} from './protocol/index.ts';

export interface Output {
  channel: OutputChannel;
  data: Uint8Array;
}

const CHANNELS: Record<number, OutputChannel> = { 1: 'stdout', 2: 'stderr', 3: 'pty' };

/** What an output in the queue takes beside its bytes. */
const QUEUED_OUTPUT = 256;
/** Beyond this much unread output a socket that can pause does, and goes on at half of it. */
const READ_AHEAD = 4 * 1024 * 1024;
/** Beyond this much unsent input `write` waits. */
const WRITE_AHEAD = 1024 * 1024;
const WRITE_POLL_MS = 5;

type Pausable = WebSocket & { pause?(): void; resume?(): void };

export class Process implements AsyncDisposable {
  readonly id: string;
  readonly pid: number;
  /**
   * Settles when the command has ended. Rejects `unavailable` if the connection is lost before, `cancelled`
   * on `detach`.
   */
  readonly ended: Promise<CommandEnd>;
  /** What the network policy denied while it ran, once it has ended. */
  denied: readonly EgressDenial[] = [];
  readonly #socket: Pausable;
  readonly #queue: Output[] = [];
  #queuedBytes = 0;
  #paused = false;
  #wake: (() => void) | undefined;
  #over = false;
  #failure: CayError | undefined;
  #offset: number;
  #settle!: { resolve(end: CommandEnd): void; reject(error: CayError): void };

  /** @internal Made by `Sandbox.spawn`, `shell` and `attach`. */
  constructor(socket: WebSocket, started: { id: string; pid: number }, offset: number) {
    this.#socket = socket;
    this.#offset = offset;
    this.id = started.id;
    this.pid = started.pid;
    this.ended = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    // A caller that does not await `ended` must get no unhandled rejection.
    this.ended.catch(() => {});
    socket.addEventListener('message', ({ data }: { data: unknown }) => {
      if (typeof data !== 'string') return this.#push(new Uint8Array(data as ArrayBuffer));
      const event = eventOf(data);
      if (event) this.#take(event);
      else this.#fail(noEvent(`during command "${this.id}"`));
    });
    socket.addEventListener('close', () => {
      this.#fail(
        new CayError('unavailable', `The connection to command "${this.id}" was lost`, {
          hint: 'attach again from its offset',
        }),
      );
    });
  }

  /** Bytes of output received so far, over all channels: where `attach` would go on. */
  get offset(): number {
    return this.#offset;
  }

  /** Output in order. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined> {
    for (;;) {
      const next = this.#queue.shift();
      if (next) {
        this.#queuedBytes -= next.data.length + QUEUED_OUTPUT;
        if (this.#paused && this.#queuedBytes < READ_AHEAD / 2) this.#pause(false);
        yield next;
      } else if (this.#failure) throw this.#failure;
      else if (this.#over) return;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Waits for the end; the code is the one that a shell would show. */
  async wait(): Promise<{ end: CommandEnd; exitCode: number }> {
    const end = await this.ended;
    return { end, exitCode: shellExitCode(end) };
  }

  /** Sends input, and resolves when there is room for more. */
  async write(data: string | Uint8Array): Promise<void> {
    this.#send(typeof data === 'string' ? new TextEncoder().encode(data) : data);
    while (!this.#over && this.#socket.bufferedAmount > WRITE_AHEAD)
      await new Promise((resolve) => setTimeout(resolve, WRITE_POLL_MS));
  }

  closeStdin(): void {
    this.#send({ closeStdin: true });
  }

  resize(size: PtySize): void {
    this.#send({ resize: size });
  }

  kill(signal: Signal = 'SIGKILL'): void {
    this.#send({ signal });
  }

  /** Lets go; the command runs on. */
  detach(): void {
    if (this.#over) return;
    this.#settle.reject(new CayError('cancelled', `Command "${this.id}" was detached from`));
    this.#finish();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }

  /** What is sent to a command that has ended is lost, as with any process. */
  #send(message: Uint8Array | Record<string, unknown>): void {
    if (this.#over) return;
    // The bytes are the caller's own, never shared memory.
    this.#socket.send(
      message instanceof Uint8Array ? (message as Uint8Array<ArrayBuffer>) : JSON.stringify(message),
    );
  }

  #take(event: ExecEvent): void {
    if (event.type === 'gap') this.#offset += event.bytes;
    if (event.type === 'error') this.#fail(errorOf(event.error));
    if (event.type !== 'end' || this.#over) return;
    this.denied = event.denied ?? [];
    this.#settle.resolve(event.end);
    this.#finish();
  }

  #push(frame: Uint8Array): void {
    const channel = CHANNELS[frame[0] ?? 0];
    if (!channel || this.#over || frame.length === 1) return;
    const data = frame.subarray(1);
    this.#offset += data.length;
    this.#queuedBytes += data.length + QUEUED_OUTPUT;
    this.#queue.push({ channel, data });
    if (!this.#paused && this.#queuedBytes > READ_AHEAD) this.#pause(true);
    this.#wake?.();
  }

  #pause(paused: boolean): void {
    this.#paused = paused;
    if (paused) this.#socket.pause?.();
    else this.#socket.resume?.();
  }

  #fail(error: CayError): void {
    if (this.#over) return;
    this.#failure = error;
    this.#settle.reject(error);
    this.#finish();
  }

  #finish(): void {
    this.#over = true;
    this.#wake?.();
    this.#socket.close();
  }
}

/** Opens a command's stream and resolves when the server says that it has started. */
export function openProcess(
  socket: WebSocket,
  opening: Record<string, unknown>,
  offset = 0,
): Promise<Process> {
  return new Promise((resolve, reject) => {
    const lost = () =>
      reject(new CayError('unavailable', 'The connection was lost before the command started'));
    socket.addEventListener('close', lost, { once: true });
    socket.addEventListener(
      'message',
      ({ data }: { data: unknown }) => {
        socket.removeEventListener('close', lost);
        const event = eventOf(data);
        // The next message may come in this same turn, so the Process has to listen before it ends.
        if (event?.type === 'started') return resolve(new Process(socket, event, offset));
        socket.close();
        reject(
          event?.type === 'error' ? errorOf(event.error) : noEvent("at the beginning of a command's stream"),
        );
      },
      { once: true },
    );
    socket.send(JSON.stringify(opening));
  });
}

const ENDS: readonly string[] = ['signalled', 'timed_out', 'oom_killed', 'lost'];

/** What a message says, if it is an event: what answers may be another program than a server of Cay. */
function eventOf(message: unknown): ExecEvent | undefined {
  if (typeof message !== 'string') return undefined;
  try {
    const event = JSON.parse(message) as ExecEvent | null;
    return event !== null && isWhole(event) ? event : undefined;
  } catch {
    return undefined;
  }
}

/** Has what this file reads of it. Events of newer servers, of types unknown here, are passed over. */
function isWhole(event: ExecEvent): boolean {
  if (event.type === 'started') return typeof event.id === 'string';
  if (event.type === 'gap') return Number.isSafeInteger(event.bytes);
  if (event.type === 'error') return typeof event.error?.message === 'string';
  if (event.type === 'end') return isEnd(event.end) && Array.isArray(event.denied ?? []);
  return typeof event.type === 'string';
}

/** An end without its code would be taken for success. */
function isEnd(end: CommandEnd | undefined): boolean {
  if (end?.kind === 'exited') return Number.isInteger(end.exitCode);
  return end !== undefined && ENDS.includes(end.kind);
}

function noEvent(when: string): CayError {
  return new CayError('internal', `The server sent something that is no event ${when}`, {
    hint: 'look whether the URL is that of Cay, and whether a proxy changes what it sends',
  });
}

function errorOf(error: { code: string; message: string }): CayError {
  return isErrorCode(error.code)
    ? CayError.fromWire(error as WireError)
    : new CayError('unavailable', error.message);
}
