/** E2B's process service: all commands of the sandbox, by pid or by tag. */
import { randomBytes } from 'node:crypto';
import { CayError, isCayError, type CommandInfo } from '@cay/sdk/protocol';
import type { EnteredSandbox } from '../../../control/control.ts';
import type { CommandHandle, Guest } from '../../../guest/guest.ts';
import { toE2bId } from '../sandbox-id.ts';
import { accountOf, invalidUser, resolvePath, type EnvdCaller, type EnvdContext } from './context.ts';
import {
  InputRequest,
  ProcessRequest,
  SignalRequest,
  StartRequest,
  StreamedInput,
  UpdateRequest,
  endEvent,
  type Selector,
} from './process-messages.ts';
import { deadlineMs, type StreamOut } from './stream-out.ts';
import { ignoreFailure, inBackground } from '../../../lib/in-background.ts';

export interface Processes {
  list(context: EnvdContext): Promise<unknown>;
  /**
   * Starts a process and streams its output. When the client disconnects the process keeps running, and its
   * output is read and dropped, so that it does not block.
   */
  start(context: EnvdCaller, message: unknown, out: () => StreamOut): Promise<void>;
  connect(context: EnvdContext, message: unknown, out: () => StreamOut): Promise<void>;
  sendInput(context: EnvdContext, message: unknown): Promise<unknown>;
  streamInput(context: EnvdContext, messages: AsyncIterable<unknown>): Promise<unknown>;
  sendSignal(context: EnvdContext, message: unknown): Promise<unknown>;
  closeStdin(context: EnvdContext, message: unknown): Promise<unknown>;
  update(context: EnvdContext, message: unknown): Promise<unknown>;
  /**
   * Reads and drops the output of processes that an earlier server started here. They would block otherwise.
   */
  adopt(guest: Guest, row: EnteredSandbox): Promise<void>;
}

const ID = /^e2b\.[0-9a-f]{16}(?:\.([A-Za-z0-9_-]+))?$/;

/** The tag is part of the command id, because the guest keeps ids across restarts of the server. */
function newCommandId(tag: string | undefined): string {
  const id = `e2b.${randomBytes(8).toString('hex')}`;
  const encoded = tag ? `.${Buffer.from(tag).toString('base64url')}` : '';
  if (id.length + encoded.length > 128) throw new CayError('invalid_argument', 'A tag has at most 80 bytes');
  return id + encoded;
}

function tagOf(id: string): string | undefined {
  const encoded = ID.exec(id)?.[1];
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64url').toString();
}

export function processes(): Processes {
  /** Handles of commands whose output is read here. They take input without another attach. */
  const live = new Map<string, CommandHandle>();

  async function withHandle<T>(
    context: EnvdContext,
    selector: Selector,
    use: (handle: CommandHandle) => Promise<T>,
  ): Promise<T> {
    const { id, outputBytes } = await find(context, selector);
    const known = live.get(`${context.row.id}/${id}`);
    if (known) return use(known);
    await using handle = await context.guest.attach(id, { offset: outputBytes, signal: context.signal });
    return await use(handle);
  }

  /**
   * Streams output to the end of the process. When the client disconnects, the handle that was first
   * continues to read, so that the process does not block; other handles are closed.
   */
  async function follow(context: EnvdCaller, handle: CommandHandle, out: StreamOut): Promise<void> {
    const key = `${context.row.id}/${handle.id}`;
    if (!live.has(key)) live.set(key, handle);
    const letGo = () => {
      if (live.get(key) !== handle)
        inBackground(Promise.resolve(handle[Symbol.asyncDispose]()), ignoreFailure);
    };
    if (context.signal.aborted) letGo();
    else context.signal.addEventListener('abort', letGo, { once: true });
    try {
      await out.send({ event: { start: { pid: handle.pid } } });
      for await (const chunk of handle.output) {
        if (chunk.channel === 'gap' || out.gone) continue;
        await out.send({ event: { data: { [chunk.channel]: out.bytes(chunk.data) } } });
      }
      const end = await handle.ended;
      if (end.kind === 'timed_out')
        throw new CayError('deadline_exceeded', 'The process ran longer than was allowed and was killed');
      const event = endEvent(end);
      // The sandbox is gone, so the connection is cut.
      if (!event) return out.cut();
      await out.send({ event: { end: event } });
      out.end();
    } finally {
      if (live.get(key) === handle) live.delete(key);
      await handle[Symbol.asyncDispose]();
    }
  }

  async function readOn(guest: Guest, key: string, { id, outputBytes }: CommandInfo): Promise<void> {
    const handle = await guest.attach(id, { offset: outputBytes });
    if (live.has(key)) return handle[Symbol.asyncDispose]();
    live.set(key, handle);
    try {
      for await (const _ of handle.output);
    } finally {
      if (live.get(key) === handle) live.delete(key);
      await handle[Symbol.asyncDispose]();
    }
  }

  return {
    async adopt(guest, row) {
      for (const command of await guest.commands()) {
        const key = `${row.id}/${command.id}`;
        // A command that has ended needs no reader.
        if (command.end === undefined && ID.test(command.id) && !live.has(key))
          readOn(guest, key, command).catch(() => {});
      }
    },

    async list({ guest }) {
      const commands = (await guest.commands()).filter(({ end }) => end === undefined);
      return {
        processes: commands.map(({ id, pid, argv: [cmd = '', ...args] }) => {
          const tag = tagOf(id);
          // The environment may hold secrets, so it is not shown.
          return { config: { cmd, args, envs: {} }, pid, ...(tag !== undefined && { tag }) };
        }),
      };
    },

    async start(context, message, out) {
      const request = StartRequest.parse(message);
      const handle = await launch(context, request);
      await follow(context, handle, out());
    },

    async connect(context, message, out) {
      const { process } = ProcessRequest.parse(message);
      const { id, outputBytes } = await find(context, process, { ended: true });
      const handle = await context.guest.attach(id, { offset: outputBytes });
      const stream = out();
      const deadline = deadlineMs(context.headers);
      const timer =
        deadline &&
        setTimeout(
          () =>
            stream.end({
              code: 'deadline_exceeded',
              message: 'The process was followed as long as was asked for',
            }),
          deadline,
        );
      try {
        await follow(context, handle, stream);
      } finally {
        clearTimeout(timer);
      }
    },

    async sendInput(context, message) {
      const { process, input } = InputRequest.parse(message);
      await withHandle(context, process, (handle) =>
        handle.write(input.stdin ?? input.pty ?? Buffer.alloc(0)),
      );
      return {};
    },

    async streamInput(context, messages) {
      const iterator = messages[Symbol.asyncIterator]();
      const first = await iterator.next();
      const start = first.done ? undefined : StreamedInput.parse(first.value).start;
      if (!start) throw new CayError('invalid_argument', 'The first message has to name the process');
      await withHandle(context, start.process, async (handle) => {
        for await (const message of { [Symbol.asyncIterator]: () => iterator }) {
          const { data } = StreamedInput.parse(message);
          if (data) await handle.write(data.input.stdin ?? data.input.pty ?? Buffer.alloc(0));
        }
      });
      return {};
    },

    async sendSignal(context, message) {
      const { process, signal } = SignalRequest.parse(message);
      const { id } = await find(context, process);
      await context.guest.signal(id, signal);
      return {};
    },

    async closeStdin(context, message) {
      const { process } = ProcessRequest.parse(message);
      await withHandle(context, process, (handle) => handle.closeStdin());
      return {};
    },

    async update(context, message) {
      const { process, pty } = UpdateRequest.parse(message);
      const { id } = await find(context, process);
      if (pty) await context.guest.resize(id, pty.size);
      return {};
    },
  };
}

async function find(
  context: EnvdContext,
  selector: Selector,
  options: { ended?: boolean } = {},
): Promise<CommandInfo> {
  const commands = await context.guest.commands();
  const fits = (command: CommandInfo) =>
    selector.tag !== undefined ? tagOf(command.id) === selector.tag : command.pid === selector.pid;
  const found = commands.filter(fits);
  // Pids are reused, so the newest command is meant.
  const command =
    found.findLast(({ end }) => end === undefined) ?? (options.ended ? found.at(-1) : undefined);
  if (command) return command;
  const what = selector.tag !== undefined ? `tag '${selector.tag.slice(0, 80)}'` : `pid ${selector.pid ?? 0}`;
  throw new CayError('not_found', `process with ${what} not found`);
}

async function launch(
  context: EnvdCaller,
  { process, pty, tag, stdin }: StartRequest,
): Promise<CommandHandle> {
  const { control, principal, row, user, headers } = context;
  const timeoutMs = deadlineMs(headers);
  try {
    const { handle } = await control.commands.start(principal, row.id, {
      id: newCommandId(tag),
      argv: [process.cmd, ...process.args],
      env: {
        E2B_SANDBOX: 'true',
        E2B_SANDBOX_ID: toE2bId(row.id),
        E2B_TEMPLATE_ID: row.spec.template,
        ...row.spec.env,
        ...process.envs,
      },
      workdir: await workdir(context, process.cwd),
      ...(user !== undefined && { user }),
      ...(pty ? { pty: pty.size } : { stdin: stdin !== false }),
      ...(timeoutMs !== undefined && { timeoutMs }),
    });
    return handle;
  } catch (error) {
    throw startFailure(error, user ?? row.spec.user);
  }
}

/** The directory of a process: the given one, the sandbox's own, or the home of another user. */
async function workdir(context: EnvdCaller, cwd: string | undefined): Promise<string> {
  if (cwd !== undefined && cwd !== '') return resolvePath(context, cwd);
  const { user, row } = context;
  return user === undefined || user === row.spec.user ? row.spec.workdir : (await accountOf(context)).home;
}

function startFailure(error: unknown, user: string): unknown {
  if (!isCayError(error)) return error;
  const { what } = error.details;
  if (what === 'user') return invalidUser(user);
  if (what === 'workdir' || what === 'command' || error.code === 'permission_denied')
    return new CayError('invalid_argument', error.message);
  return error;
}
