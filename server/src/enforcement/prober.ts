/**
 * The program of the report inside the sandbox: the guest's own binary, put there as a file, so that it runs
 * in any image. `attempt` tries one thing and says what came of it. `relay` opens a connection in the sandbox
 * and gives its ends, so that any protocol of this process is spoken from in there.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CommandHandle, Guest, GuestExec } from '../guest/guest.ts';
import { withTimeout } from '../lib/timeout.ts';
import { guestBinary } from '../guest/guest-binary.ts';

export type ProbeUser = 'user' | 'root';

export interface Prober {
  /** The users that commands run as here, the one with fewer rights first. */
  readonly users: readonly ProbeUser[];
  /** What came of it, in the words of `guest/src/probe`. */
  attempt(line: string, user?: ProbeUser): Promise<string>;
  /** The ends of a connection. A string says why there is none. */
  relay(host: string, port: number): Promise<Duplex | string>;
  close(): Promise<void>;
}

/** An attempt that takes longer has no answer. */
const ATTEMPT_MS = 60_000;
const RELAY_MS = 15_000;
const MAX_LINE = 64 * 1024;

export async function openProber(guest: Guest, directory: string): Promise<Prober> {
  const path = `${directory}/.cay-probe-${randomBytes(6).toString('hex')}`;
  await guest.files('user').write(path, await readFile(guestBinary()), { mode: 0o755 });
  const handles = new Set<CommandHandle>();
  let count = 0;
  const start = async (argv: string[], user: ProbeUser): Promise<CommandHandle> => {
    const request: GuestExec = {
      id: `probe-${count++}-${randomBytes(6).toString('hex')}`,
      argv: [path, 'probe', ...argv],
      env: {},
      workdir: '/',
      user,
      stdin: true,
    };
    const handle = await guest.exec(request);
    handles.add(handle);
    return handle;
  };
  const shells = new Map<ProbeUser, Promise<LineTalk>>();
  const users: ProbeUser[] = ['user'];
  const talk = (user: ProbeUser) => {
    let known = shells.get(user);
    if (!known) shells.set(user, (known = start([], user).then((handle) => new LineTalk(handle))));
    return known;
  };
  const second = await talk('root').then(
    (root) => root.say('read /proc/self/loginuid').then(() => true),
    () => false,
  );
  if (second) users.push('root');
  else shells.delete('root');

  return {
    users,
    async attempt(line, user = 'user') {
      try {
        return await (await talk(user)).say(line);
      } catch (error) {
        // What was tried ended the process, or more. The next case starts another.
        shells.delete(user);
        return `lost ${(error as Error).message}`;
      }
    },
    async relay(host, port) {
      const handle = await start(['relay', host, String(port)], 'user');
      return withTimeout(openRelay(handle), RELAY_MS, () => new Error('the relay says nothing'));
    },
    async close() {
      for (const handle of handles) {
        await guest.signal(handle.id, 'SIGKILL').catch(() => {});
        await Promise.resolve(handle[Symbol.asyncDispose]()).catch(() => {});
      }
      await guest
        .files('user')
        .remove(path)
        .catch(() => {});
    },
  };
}

/** A process that answers each line with one. */
class LineTalk {
  readonly #handle: CommandHandle;
  readonly #output: AsyncIterator<unknown>;
  #text = '';
  #last: Promise<unknown> = Promise.resolve();

  constructor(handle: CommandHandle) {
    this.#handle = handle;
    this.#output = chunksOf(handle)[Symbol.asyncIterator]();
  }

  say(line: string): Promise<string> {
    const answer = this.#last.then(() => this.#ask(line));
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #ask(line: string): Promise<string> {
    await this.#handle.write(Buffer.from(`${line}\n`));
    const late = AbortSignal.timeout(ATTEMPT_MS);
    for (;;) {
      const end = this.#text.indexOf('\n');
      if (end !== -1) {
        const said = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 1);
        return said;
      }
      if (this.#text.length > MAX_LINE) throw new Error('the answer is too long');
      const next = await Promise.race([
        this.#output.next(),
        sleep(ATTEMPT_MS, undefined, { signal: late }).catch(() => undefined),
      ]);
      if (next === undefined) throw new Error(`no answer in ${ATTEMPT_MS / 1000} s`);
      if (next.done) throw new Error('the probe ended');
      this.#text += (next.value as Buffer).toString('latin1');
    }
  }
}

async function* chunksOf(handle: CommandHandle): AsyncGenerator<Buffer> {
  for await (const chunk of handle.output)
    if (chunk.channel === 'stdout')
      yield Buffer.from(chunk.data.buffer, chunk.data.byteOffset, chunk.data.length);
}

async function openRelay(handle: CommandHandle): Promise<Duplex | string> {
  const chunks = chunksOf(handle);
  let head = Buffer.alloc(0);
  while (!head.includes(0x0a)) {
    const { value, done } = await chunks.next();
    if (done || head.length > 1024) return 'lost the probe ended';
    head = Buffer.concat([head, value]);
  }
  const end = head.indexOf(0x0a);
  const said = head.subarray(0, end).toString();
  if (said !== 'connected') return said;
  const rest = head.subarray(end + 1);
  const duplex: Duplex = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      handle.write(chunk).then(
        () => done(),
        (error: Error) => done(error),
      );
    },
    final(done) {
      handle.closeStdin().then(
        () => done(),
        () => done(),
      );
    },
    destroy(error, done) {
      void handle.closeStdin().catch(() => {});
      done(error);
    },
  });
  if (rest.length > 0) duplex.push(rest);
  const copied = async () => {
    try {
      for await (const chunk of chunks) duplex.push(chunk);
    } catch {
      // The guest is gone, and with it the connection.
    }
    if (!duplex.destroyed) duplex.push(null);
  };
  copied().catch(() => duplex.destroy());
  duplex.on('error', () => {});
  return duplex;
}
