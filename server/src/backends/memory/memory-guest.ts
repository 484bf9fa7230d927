import { CayError, ExecRequestSchema, type CommandEnd, type Signal } from '@cay/sdk/protocol';
import type { CallOptions, Guest, GuestExec } from '../../guest/guest.ts';
import { DEFAULT_PATH } from './launch.ts';
import type { Machine } from './machine.ts';
import { startCommand, type MemoryCommand } from './memory-command.ts';
import { memoryFiles } from './memory-files.ts';
import { lookUpUser } from './users.ts';

const MAX_ENDED = 256;
const MAX_KEPT_BYTES = 8 * 1024 * 1024;
const IGNORED: readonly Signal[] = ['SIGCHLD', 'SIGCONT', 'SIGURG', 'SIGWINCH'];
const HOLDING: readonly Signal[] = ['SIGSTOP', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU'];

export interface MemoryGuest extends Guest {
  /** Ends every command as `how`; from then on every call rejects. */
  shutDown(how: CommandEnd): void;
}

/** The Guest of one incarnation. Commands are functions, so all that is done to one is done at once. */
export function memoryGuest(machine: Machine): MemoryGuest {
  const { tree, gone, ports, gate } = machine;
  const commands = new Map<string, MemoryCommand>();
  let lastPid = 1;

  async function begin({ signal }: CallOptions = {}): Promise<void> {
    await gate.pass(gone, signal);
    if (gone.aborted) throw gone.reason;
    if (signal?.aborted) throw new CayError('cancelled', 'The caller gave up', { cause: signal.reason });
  }

  function get(id: string): MemoryCommand {
    const command = commands.get(id);
    if (!command)
      throw new CayError('not_found', `Cannot find command ${JSON.stringify(id.slice(0, 128))}`, {
        details: { what: 'command' },
      });
    return command;
  }

  /** Remembers a bounded past: the oldest ends go first, and their output before them. */
  function trim(): void {
    const ended = [...commands.values()].filter(({ end }) => end);
    for (const { id } of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) commands.delete(id);
    let kept = ended.reduce((sum, { keptBytes }) => sum + keptBytes, 0);
    for (const command of ended) {
      if (kept <= MAX_KEPT_BYTES) break;
      if (command.inUse) continue;
      kept -= command.keptBytes;
      command.forgetOutput();
    }
  }

  function start(request: GuestExec): MemoryCommand {
    if (request.pty)
      throw new CayError('unsupported', 'Cannot run on a terminal: the memory backend has none');
    const user = lookUpUser(tree, request.user);
    try {
      const { node } = tree.get(user, request.workdir);
      if (node.type !== 'directory') throw new Error('not a directory');
      tree.demand(user, node, 1, request.workdir);
    } catch (cause) {
      throw new CayError('not_found', `Cannot run in ${JSON.stringify(request.workdir)}: no such directory`, {
        cause,
        details: { what: 'workdir' },
      });
    }
    const env = { PATH: DEFAULT_PATH, HOME: user.home, USER: user.name, LOGNAME: user.name, ...request.env };
    const argv = request.argv ?? ['/bin/sh', '-c', request.shell!];
    const command = startCommand(machine, { pid: lastPid + 1, argv, request, env, user, onIdle: trim });
    lastPid++;
    commands.set(request.id, command);
    return command;
  }

  return {
    async exec(request, options = {}) {
      await begin(options);
      const issue = ExecRequestSchema.safeParse(request).error?.issues[0];
      if (issue)
        throw new CayError(
          'invalid_argument',
          `Cannot run the command: "${issue.path.join('.')}" ${issue.message}`,
        );
      const known = commands.get(request.id);
      const { limits, usage } = machine;
      if (!known && limits.pids !== null && usage.programs >= limits.pids) {
        throw new CayError(
          'resource_exhausted',
          `Cannot run the command: ${limits.pids} processes are running already`,
          {
            details: { errno: 'EAGAIN' },
          },
        );
      }
      return (known ?? start(request)).attach({ offset: 0, existing: known !== undefined, ...options });
    },
    async attach(id, options = {}) {
      await begin(options);
      return get(id).attach({ ...options, offset: options.offset ?? 0, existing: true });
    },
    async commands(options) {
      await begin(options);
      return [...commands.values()].map((command) => command.info());
    },
    async signal(id, signal, options) {
      await begin(options);
      const command = get(id);
      if (command.end)
        throw new CayError('failed_precondition', `Cannot signal command "${id}": it has ended`);
      if (HOLDING.includes(signal))
        throw new CayError(
          'unsupported',
          `Cannot send ${signal}: a program of the memory backend cannot be held`,
        );
      if (!IGNORED.includes(signal)) command.kill({ kind: 'signalled', signal });
    },
    async resize(id, _size, options) {
      await begin(options);
      get(id);
      throw new CayError('unsupported', `Cannot resize command "${id}": the memory backend has no terminals`);
    },
    async forget(id, options) {
      await begin(options);
      const command = commands.get(id);
      if (command && !command.end)
        throw new CayError('failed_precondition', `Cannot forget command "${id}": it is running`);
      commands.delete(id);
    },
    files: (user) => memoryFiles({ tree, user, gone, gate }),
    async tool(_user, { name }) {
      throw new CayError('unsupported', `Cannot run the tool "${name}": the memory backend has no tools`);
    },
    ports,
    shutDown(how) {
      for (const command of commands.values()) command.kill(how);
    },
  };
}
