import { CayError, type CommandEnd, type OutputChannel } from '@cay/sdk/protocol';
import type { CborMap } from './cbor.ts';
import type { GuestConnection } from './connection.ts';
import type { CommandHandle, OutputChunk, OutputGap } from './guest.ts';
import { bool, int, parseEnd } from './parse.ts';
import type { GuestStream, StreamItem } from './stream.ts';
import { violation } from './violation.ts';

const CHANNELS: readonly (OutputChannel | undefined)[] = [undefined, 'stdout', 'stderr', 'pty'];
const DONE: IteratorReturnResult<undefined> = { done: true, value: undefined };

export interface Started {
  pid: number;
  offset: number;
  existing: boolean;
}

export function parseStarted(map: CborMap): Started {
  if (map['event'] !== 'started') throw violation('the first event of a command is not "started"');
  return {
    pid: int(map, 'pid', 0, 0xffff_ffff),
    offset: int(map, 'offset'),
    existing: bool(map, 'existing'),
  };
}

export interface AttachedCommandOptions {
  id: string;
  connection: GuestConnection;
  stream: GuestStream;
  started: Started;
  /** Absent if it is not known. */
  takesInput?: boolean | undefined;
}

type Output = OutputChunk | OutputGap;

/** A reader of a command on one connection. */
export class AttachedCommand implements CommandHandle, AsyncIterator<Output> {
  readonly id: string;
  readonly pid: number;
  readonly existing: boolean;
  readonly output: AsyncIterable<Output>;
  readonly ended: Promise<CommandEnd>;
  /** Absent if it is not known. */
  readonly takesInput: boolean | undefined;

  readonly #connection: GuestConnection;
  readonly #stream: GuestStream;
  #position: number;
  #resolveEnded!: (end: CommandEnd) => void;
  #finished = false;
  /** True while `next` waits for the stream. */
  #reading = false;
  /** A gap that was met while looking for the end. */
  #gap: OutputGap | undefined;

  constructor({ id, connection, stream, started, takesInput }: AttachedCommandOptions) {
    this.id = id;
    this.pid = started.pid;
    this.existing = started.existing;
    this.#position = started.offset;
    this.#connection = connection;
    this.#stream = stream;
    this.takesInput = takesInput;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    let used = false;
    this.output = {
      [Symbol.asyncIterator]: () => {
        if (used)
          throw new CayError(
            'failed_precondition',
            `Cannot read the output of command "${id}" twice with one handle`,
          );
        used = true;
        return this;
      },
    };
    stream.onArrival = () => this.#lookForEnd();
    this.#lookForEnd();
  }

  /** Offset of the next byte of output that will be handed out. */
  get position(): number {
    return this.#position;
  }

  /** The boot id of the guest that it runs in. */
  get boot(): string {
    return this.#connection.hello.boot;
  }

  /** True if it ended as `lost` only because the connection was lost. */
  get interrupted(): boolean {
    return this.#stream.interrupted;
  }

  async next(): Promise<IteratorResult<Output>> {
    while (!this.#finished || this.#gap) {
      if (this.#gap) {
        const value = this.#gap;
        this.#gap = undefined;
        this.#lookForEnd();
        return { done: false, value };
      }
      let item: StreamItem | undefined;
      this.#reading = true;
      try {
        item = await this.#stream.read();
      } catch (error) {
        this.#reading = false;
        return this.#failed(error as CayError);
      }
      this.#reading = false;
      const value = this.#take(item);
      if (!value) continue;
      this.#lookForEnd();
      return { done: false, value };
    }
    return DONE;
  }

  return(): Promise<IteratorResult<Output>> {
    this.close();
    return Promise.resolve(DONE);
  }

  async write(data: Uint8Array): Promise<void> {
    if (this.takesInput === false) {
      throw new CayError(
        'failed_precondition',
        `Cannot write to command "${this.id}": it was started without "stdin" or "pty"`,
      );
    }
    await this.#stream.write(data);
    if (!this.#finished) await this.#stream.room();
  }

  async closeStdin(): Promise<void> {
    if (this.takesInput === false || this.#finished) return;
    await this.#stream.send({ closeStdin: true });
  }

  /** Detaches from the command. Its end is still reported if it has arrived already, behind unread output. */
  close(): void {
    this.#gap = undefined;
    while (!this.#finished) {
      const item = this.#stream.takeNow();
      if (!item) break;
      if (item.message?.['event'] === 'end') this.#finish(this.#stream.check(parseEnd, item.message));
    }
    if (this.#finished) return;
    this.#finish({ kind: 'lost', reason: 'The handle was closed before the command ended' });
    this.#stream.reset(new CayError('cancelled', 'The reader has let go of the command'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** Settles the end without a reader when only the end is left. */
  #lookForEnd(): void {
    if (this.#reading) return;
    while (!this.#finished && !this.#gap && this.#stream.messageIsNext) {
      try {
        const value = this.#take(this.#stream.takeNow());
        if (value?.channel === 'gap') this.#gap = value;
      } catch (error) {
        // The check has closed the connection, which may be what runs this.
        return this.#finish({ kind: 'lost', reason: (error as CayError).message });
      }
    }
    const failure = this.#stream.failure;
    if (failure && !this.#finished && !this.#gap && this.#stream.drained)
      this.#finish({ kind: 'lost', reason: failure.message });
  }

  #take(item: StreamItem | undefined): Output | undefined {
    if (this.#finished) return undefined;
    const value = this.#stream.check((one: StreamItem | undefined) => this.#parse(one), item);
    if (value && 'kind' in value) {
      this.#finish(value);
      return undefined;
    }
    return value;
  }

  #parse(item: StreamItem | undefined): Output | CommandEnd | undefined {
    if (!item) throw violation('the output of a command ended without its end');
    const offset = this.#position;
    if (!item.message) {
      const channel = CHANNELS[item.channel];
      if (!channel) throw violation(`output came on channel ${item.channel}`);
      this.#position += item.data.length;
      return { channel, offset, data: item.data };
    }
    switch (item.message['event']) {
      case 'gap': {
        const bytes = int(item.message, 'bytes');
        this.#position += bytes;
        if (!Number.isSafeInteger(this.#position)) throw violation('the output of a command is too long');
        return { channel: 'gap', offset, bytes };
      }
      case 'end':
        return parseEnd(item.message);
      case 'started':
        throw violation('a command has started twice');
      default:
        return undefined;
    }
  }

  #failed(error: CayError): IteratorResult<Output> {
    const known = this.#finished;
    this.#finish({ kind: 'lost', reason: error.message });
    // A caller that aborted must not take the output so far for all of it.
    const givenUp = error.code === 'cancelled' || error.code === 'deadline_exceeded';
    if (givenUp && !known && !this.#connection.error) throw error;
    return DONE;
  }

  #finish(end: CommandEnd): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#resolveEnded(end);
    this.#stream.onArrival = undefined;
    if (end.kind !== 'lost') this.#stream.end();
  }
}
