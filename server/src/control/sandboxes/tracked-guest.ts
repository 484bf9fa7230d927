/**
 * A guest whose every call is counted as a use of its sandbox for as long as the call lasts. A call waits
 * while the sandbox's gate is closed, and wakes it if it was paused, so callers need not know of pauses.
 */
import type { CommandHandle, Files, Guest } from '../../guest/guest.ts';
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

  /** The call lasts until its result is disposed of. */
  async function lasting<T extends AsyncDisposable>(
    use: Use,
    operation: (guest: Guest) => Promise<T>,
  ): Promise<{ value: T; over(): void }> {
    const inside = await begin(use);
    const over = () => inside[Symbol.dispose]();
    try {
      return { value: withDispose(await operation(inside.guest), over), over };
    } catch (error) {
      over();
      throw error;
    }
  }

  async function command(
    use: Use,
    operation: (guest: Guest) => Promise<CommandHandle>,
  ): Promise<CommandHandle> {
    const { value, over } = await lasting(use, operation);
    value.ended.then(over, over);
    return value;
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
    ports: {
      connect: async (...given) =>
        (await lasting(connection, (guest) => guest.ports.connect(...given))).value,
      list: (...given) => call((guest) => guest.ports.list(...given)),
      watch: (...given) => flowing('client', (guest) => guest.ports.watch(...given)),
    },
  };
}

/** The same object, which also calls `over` when it is disposed of. */
function withDispose<T extends AsyncDisposable>(value: T, over: () => void): T {
  return new Proxy(value, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown;
      if (name !== Symbol.asyncDispose)
        return typeof member === 'function' ? (member.bind(target) as unknown) : member;
      return () =>
        target[Symbol.asyncDispose]().then(over, (error: unknown) => {
          over();
          throw error;
        });
    },
  });
}
