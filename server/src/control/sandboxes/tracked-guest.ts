/**
 * A guest whose every call is counted as a use of its sandbox for as long as the call lasts. A call waits
 * while the sandbox's gate is closed, and wakes it if it was paused, so callers need not know of pauses.
 */
import type { CommandHandle, Connection, Files, Guest } from '../../guest/guest.ts';
import type { Use } from './activity.ts';

/** One call that is inside, until it is disposed of. */
export interface GuestCall extends Disposable {
  guest: Guest;
}

export interface TrackedGuestOptions {
  /** Begins a call. Rejects if the sandbox is neither active nor paused. */
  call(use: Use): Promise<GuestCall>;
  /** Counts a use that is part of a call. */
  hold(use: Use): Disposable;
  /** Starts a command, unless too many run. */
  admit(guest: Guest, begin: () => Promise<CommandHandle>): Promise<CommandHandle>;
  /** What a connection to a port counts as. */
  connection: Use;
}

export function trackedGuest({ call: begin, hold, admit, connection }: TrackedGuestOptions): Guest {
  async function call<T>(operation: (guest: Guest) => Promise<T>): Promise<T> {
    using inside = await begin('call');
    return await operation(inside.guest);
  }

  /** The call lasts until `over` is called. It is over at once if the operation fails. */
  async function lasting<T>(
    use: Use,
    operation: (guest: Guest) => Promise<T>,
  ): Promise<{ value: T; over(): void }> {
    const inside = await begin(use);
    const over = () => inside[Symbol.dispose]();
    try {
      return { value: await operation(inside.guest), over };
    } catch (error) {
      over();
      throw error;
    }
  }

  /** The call lasts until the command has ended or the handle is disposed of. */
  async function command(
    use: Use,
    operation: (guest: Guest) => Promise<CommandHandle>,
  ): Promise<CommandHandle> {
    const { value: handle, over } = await lasting(use, operation);
    handle.ended.then(over, over);
    const { id, pid, existing, output, ended } = handle;
    return {
      id,
      pid,
      existing,
      output,
      ended,
      write: (data) => handle.write(data),
      closeStdin: () => handle.closeStdin(),
      [Symbol.asyncDispose]: () => disposed(handle, over),
    };
  }

  /** The call lasts until the connection is disposed of. */
  async function connectPort(...given: Parameters<Guest['ports']['connect']>): Promise<Connection> {
    const { value, over } = await lasting(connection, (guest) => guest.ports.connect(...given));
    return {
      readable: value.readable,
      write: (data) => value.write(data),
      end: () => value.end(),
      [Symbol.asyncDispose]: () => disposed(value, over),
    };
  }

  /** Counts from the first read to the last: data that no client reads is no use. */
  function held<T>(data: AsyncIterable<T>): AsyncIterable<T> {
    return {
      [Symbol.asyncIterator]() {
        const inner = data[Symbol.asyncIterator]();
        let holding: Disposable | undefined;
        const over = () => holding?.[Symbol.dispose]();
        return {
          async next() {
            holding ??= hold('client');
            try {
              const result = await inner.next();
              if (result.done) over();
              return result;
            } catch (error) {
              over();
              throw error;
            }
          },
          async return(value?: unknown) {
            over();
            return (await inner.return?.(value)) ?? { done: true, value: undefined };
          },
        };
      },
    };
  }

  async function* flowing<T>(use: Use, operation: (guest: Guest) => AsyncIterable<T>): AsyncGenerator<T> {
    using inside = await begin(use);
    yield* operation(inside.guest);
  }

  const files = (user: string): Files => ({
    stat: (...given) => call((guest) => guest.files(user).stat(...given)),
    list: (...given) => flowing('call', (guest) => guest.files(user).list(...given)),
    async read(...given) {
      const { info, data } = await call((guest) => guest.files(user).read(...given));
      return { info, data: held(data) };
    },
    write: (...given) => call((guest) => guest.files(user).write(...given)),
    mkdir: (...given) => call((guest) => guest.files(user).mkdir(...given)),
    move: (...given) => call((guest) => guest.files(user).move(...given)),
    remove: (...given) => call((guest) => guest.files(user).remove(...given)),
    chmod: (...given) => call((guest) => guest.files(user).chmod(...given)),
    chown: (...given) => call((guest) => guest.files(user).chown(...given)),
    symlink: (...given) => call((guest) => guest.files(user).symlink(...given)),
    xattrs: (...given) => call((guest) => guest.files(user).xattrs(...given)),
    watch: async (...given) => held(await call((guest) => guest.files(user).watch(...given))),
    tar: async (...given) => held(await call((guest) => guest.files(user).tar(...given))),
    untar: (...given) => call((guest) => guest.files(user).untar(...given)),
  });

  return {
    exec: (...given) => command('command', (guest) => admit(guest, () => guest.exec(...given))),
    attach: (...given) => command('client', (guest) => guest.attach(...given)),
    commands: (...given) => call((guest) => guest.commands(...given)),
    signal: (...given) => call((guest) => guest.signal(...given)),
    resize: (...given) => call((guest) => guest.resize(...given)),
    forget: (...given) => call((guest) => guest.forget(...given)),
    files,
    tool: (...given) => call((guest) => guest.tool(...given)),
    ports: {
      connect: connectPort,
      list: (...given) => call((guest) => guest.ports.list(...given)),
      watch: (...given) => flowing('client', (guest) => guest.ports.watch(...given)),
    },
  };
}

async function disposed(inner: AsyncDisposable, over: () => void): Promise<void> {
  try {
    await inner[Symbol.asyncDispose]();
  } finally {
    over();
  }
}
