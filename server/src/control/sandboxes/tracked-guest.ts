/**
 * A guest whose every call is counted as a use of its sandbox for as long as it lasts, and which is let in
 * first: it waits while a pause is being decided, and wakes the sandbox if that came before it. Whoever holds
 * one need not know of pauses.
 */
import type { CommandHandle, Files, Guest } from '../../guest/guest.ts';
import type { Use } from './activity.ts';

/** One call inside, until it is disposed of. */
export interface GuestCall extends Disposable {
  guest: Guest;
}

export interface TrackedGuestOptions {
  /** Rejects if the sandbox does not run and does not wake. */
  visit(use: Use): Promise<GuestCall>;
  /** Counts a use by somebody who is inside already. */
  hold(use: Use): Disposable;
  /** Starts a command, if one more may run. */
  admit(guest: Guest, begin: () => Promise<CommandHandle>): Promise<CommandHandle>;
  /** What a connection to a port counts as. */
  connection: Use;
}

export function trackedGuest({ visit, hold, admit, connection }: TrackedGuestOptions): Guest {
  async function call<T>(operation: (guest: Guest) => Promise<T>): Promise<T> {
    using inside = await visit('call');
    return await operation(inside.guest);
  }

  /** The visit lasts until what came of it is disposed of. */
  async function lasting<T extends AsyncDisposable>(
    use: Use,
    operation: (guest: Guest) => Promise<T>,
  ): Promise<{ value: T; over(): void }> {
    const inside = await visit(use);
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

  /** From the first item to the last: what nobody reads is no use. */
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
    using inside = await visit(use);
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

/** The same object with something more at its end. */
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
