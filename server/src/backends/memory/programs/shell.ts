import { isCayError } from '@cay/sdk/protocol';
import { bytePipe } from '../byte-pipe.ts';
import { wordsOf } from '../errno.ts';
import type { ProgramContext, Sink, Streams } from '../program.ts';
import { gather, none } from './streams.ts';
import {
  ShellSyntaxError,
  parseShell,
  type Redirect,
  type SimpleCommand,
  type Word,
} from './shell-syntax.ts';

class ExitShell extends Error {
  readonly exitCode: number;

  constructor(exitCode: number) {
    super('exit');
    this.exitCode = exitCode;
  }
}

interface State {
  variables: Map<string, string>;
  exported: Set<string>;
  workdir: string;
  exitCode: number;
  parameters: readonly string[];
}

/** `sh -c LINE [NAME ARGUMENT…]`, `sh FILE [ARGUMENT…]`, or a script on standard input. */
export async function shell(context: ProgramContext): Promise<number> {
  const [name = 'sh', ...rest] = context.argv;
  const asLine = rest[0] === '-c';
  const script = asLine
    ? (rest[1] ?? '')
    : rest[0] === undefined
      ? (await gather(context.stdin)).toString()
      : await fileText(context, rest[0]);
  const state: State = {
    variables: new Map(Object.entries(context.env)),
    exported: new Set(Object.keys(context.env)),
    workdir: context.workdir,
    exitCode: 0,
    parameters: asLine ? (rest.length > 2 ? rest.slice(2) : [name]) : rest.length > 0 ? rest : [name],
  };
  try {
    return await runScript(context, script, state);
  } catch (error) {
    if (error instanceof ExitShell) return error.exitCode;
    if (!(error instanceof ShellSyntaxError)) throw error;
    await context.stderr.write(`${name}: ${error.message}\n`);
    return 2;
  }
}

async function fileText(context: ProgramContext, path: string): Promise<string> {
  return (await gather((await context.files.read(context.path(path))).data)).toString();
}

async function runScript(context: ProgramContext, script: string, state: State): Promise<number> {
  // Read as a whole before the first command runs, so that a line with an error in it does nothing.
  const steps = parseShell(script);
  let skip = false;
  for (const { commands, next } of steps) {
    context.signal.throwIfAborted();
    if (!skip) {
      if (next === '&') {
        // A background job runs on by itself; its end is not reported.
        pipeline(context, commands, copyOf(state), { ...context, stdin: none() }).catch(() => {});
        state.exitCode = 0;
      } else {
        state.exitCode = await pipeline(context, commands, state, context);
      }
    }
    skip = (next === '&&' && state.exitCode !== 0) || (next === '||' && state.exitCode === 0);
  }
  return state.exitCode;
}

const copyOf = (state: State): State => ({
  ...state,
  variables: new Map(state.variables),
  exported: new Set(state.exported),
});

async function pipeline(
  context: ProgramContext,
  commands: SimpleCommand[],
  state: State,
  outer: Streams,
): Promise<number> {
  if (commands.length === 1) return runCommand(context, commands[0]!, state, outer);
  let stdin = outer.stdin;
  const running = commands.map(async (command, index) => {
    const pipe = index < commands.length - 1 ? bytePipe() : undefined;
    const input = stdin;
    if (pipe) stdin = pipe;
    const stdout: Sink = pipe ? { write: (data) => pipe.write(Buffer.from(data)) } : outer.stdout;
    try {
      return await runCommand(context, command, copyOf(state), { ...outer, stdin: input, stdout });
    } catch (error) {
      if (error instanceof ExitShell) return error.exitCode;
      throw error;
    } finally {
      pipe?.end();
      // There is no reader any more: a writer gets an error.
      if (input !== outer.stdin) (input as ReturnType<typeof bytePipe>).close();
    }
  });
  const codes = await Promise.all(running);
  return codes.at(-1)!;
}

async function runCommand(
  context: ProgramContext,
  command: SimpleCommand,
  state: State,
  outer: Streams,
): Promise<number> {
  const argv = command.words.flatMap((word) => expand(word, state));
  const assigned = command.assignments.map(({ name, value }): [string, string] => [
    name,
    expand(value, state, false)[0] ?? '',
  ]);
  let streams: Streams;
  try {
    streams = await redirected(context, command.redirects, state, outer);
  } catch (error) {
    if (!isCayError(error)) throw error;
    await outer.stderr.write(`sh: ${error.message}\n`);
    return 1;
  }
  if (argv.length === 0) {
    for (const [name, value] of assigned) state.variables.set(name, value);
    return 0;
  }
  const builtin = BUILTINS[argv[0]!];
  if (builtin) return builtin({ context, argv, state, streams });
  const env = { ...environment(state), ...Object.fromEntries(assigned) };
  try {
    return await context.run(argv, { env, workdir: state.workdir, ...streams });
  } catch (error) {
    const exitCode = isCayError(error) ? error.details['exitCode'] : undefined;
    if (typeof exitCode !== 'number') throw error;
    await streams.stderr.write(`sh: ${argv[0]}: ${exitCode === 127 ? 'not found' : 'Permission denied'}\n`);
    return exitCode;
  }
}

const environment = ({ variables, exported }: State) =>
  Object.fromEntries([...variables].filter(([name]) => exported.has(name)));

async function redirected(
  context: ProgramContext,
  redirects: Redirect[],
  state: State,
  outer: Streams,
): Promise<Streams> {
  const streams: Streams = { stdin: outer.stdin, stdout: outer.stdout, stderr: outer.stderr };
  const NAMES = { 1: 'stdout', 2: 'stderr' } as const;
  for (const redirect of redirects) {
    if (redirect.kind === 'duplicate') {
      if (redirect.fd !== 0) streams[NAMES[redirect.fd]] = streams[NAMES[redirect.of]];
      continue;
    }
    const path = absolute(state, expand(redirect.path, state, false)[0] ?? '');
    if (redirect.kind === 'read') streams.stdin = (await context.files.read(path)).data;
    else if (redirect.fd !== 0)
      streams[NAMES[redirect.fd]] = await openFile(context, path, redirect.kind === 'append');
  }
  return streams;
}

async function openFile(context: ProgramContext, path: string, append: boolean): Promise<Sink> {
  // Files.write() would make the directory; a shell does not.
  await context.files.stat(path.slice(0, path.lastIndexOf('/')) || '/', { follow: true });
  await context.files.write(path, new Uint8Array(0), { append });
  return {
    async write(data) {
      await context.files.write(path, Buffer.from(data), { append: true });
    },
  };
}

const absolute = (state: State, path: string) =>
  path.startsWith('/') ? path : `${state.workdir === '/' ? '' : state.workdir}/${path}`;

/** The fields that a word stands for. What is not quoted is split at blanks, unless `split` is false. */
function expand(word: Word, state: State, split = true): string[] {
  const fields: string[] = [];
  let current: string | undefined;
  word.forEach((part, index) => {
    if (part.kind === 'variable' && part.name === '@' && split) {
      const [first, ...more] = state.parameters.slice(1);
      if (first === undefined) return;
      for (const field of [(current ?? '') + first, ...more]) fields.push(field);
      current = fields.pop();
      return;
    }
    if (part.kind === 'text') {
      const home =
        index === 0 && !part.quoted && /^~(?=\/|$)/.test(part.text)
          ? (state.variables.get('HOME') ?? '~')
          : undefined;
      current = (current ?? '') + (home === undefined ? part.text : home + part.text.slice(1));
      return;
    }
    const value = valueOf(part, state);
    if (part.quoted || !split) {
      current = (current ?? '') + value;
      return;
    }
    const pieces = value.split(/[ \t\n]+/);
    pieces.forEach((piece, at) => {
      if (at > 0 && current !== undefined) {
        fields.push(current);
        current = undefined;
      }
      if (piece !== '') current = (current ?? '') + piece;
    });
  });
  if (current !== undefined) fields.push(current);
  return fields;
}

function valueOf(
  { name, operator, other }: Extract<Word[number], { kind: 'variable' }>,
  state: State,
): string {
  const value = lookUp(name, state);
  if (!operator) return value ?? '';
  const isSet = operator.startsWith(':') ? value !== undefined && value !== '' : value !== undefined;
  if (operator.endsWith('-')) return isSet ? value! : expand(other!, state, false).join('');
  return isSet ? expand(other!, state, false).join('') : '';
}

function lookUp(name: string, state: State): string | undefined {
  if (name === '?') return String(state.exitCode);
  if (name === '#') return String(state.parameters.length - 1);
  if (name === '@') return state.parameters.slice(1).join(' ');
  if (name === '$') return '2';
  return /^\d+$/.test(name) ? state.parameters[Number(name)] : state.variables.get(name);
}

interface BuiltinCall {
  context: ProgramContext;
  argv: string[];
  state: State;
  streams: Streams;
}

/** What has to happen inside the shell, because it changes the shell. */
const BUILTINS: Record<string, (call: BuiltinCall) => Promise<number>> = {
  ':': async () => 0,

  async cd({ context, argv, state, streams }) {
    const to = argv[1] ?? state.variables.get('HOME') ?? '/';
    try {
      const path = to.startsWith('/') ? to : absolute(state, to);
      const info = await context.files.stat(path, { follow: true });
      if (info.type !== 'directory') throw new Error('not a directory');
      state.workdir = normalised(path);
      state.variables.set('PWD', state.workdir);
      return 0;
    } catch (error) {
      await streams.stderr.write(`sh: cd: ${to}: ${wordsOf(error)}\n`);
      return 1;
    }
  },

  async export({ argv, state }) {
    for (const text of argv.slice(1)) {
      const [name = '', ...value] = text.split('=');
      if (text.includes('=')) state.variables.set(name, value.join('='));
      state.exported.add(name);
    }
    return 0;
  },

  async unset({ argv, state }) {
    for (const name of argv.slice(1)) state.variables.delete(name);
    return 0;
  },

  async exit({ argv, state }) {
    throw new ExitShell(argv[1] === undefined ? state.exitCode : Number(argv[1]) & 255);
  },

  async exec({ context, argv, state, streams }) {
    if (argv.length === 1) return 0;
    const command = {
      assignments: [],
      redirects: [],
      words: argv.slice(1).map((text): Word => [{ kind: 'text', text, quoted: true }]),
    };
    throw new ExitShell(await runCommand(context, command, state, streams));
  },

  async command({ context, argv, state, streams }) {
    const [, flag, name = ''] = argv;
    if (flag !== '-v')
      throw new ShellSyntaxError(
        'syntax error: only "command -v" is known to the shell of the memory backend',
      );
    if (BUILTINS[name]) {
      await streams.stdout.write(`${name}\n`);
      return 0;
    }
    for (const directory of (state.variables.get('PATH') ?? '').split(':')) {
      const path = `${directory}/${name}`;
      const info =
        name === '' ? undefined : await context.files.stat(path, { follow: true }).catch(() => undefined);
      if (info?.type !== 'file') continue;
      await streams.stdout.write(`${path}\n`);
      return 0;
    }
    return 1;
  },
};

function normalised(path: string): string {
  const parts: string[] = [];
  for (const part of path.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
}
