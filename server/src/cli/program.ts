/** The command line as a tree. One verb's file is read when only that verb is needed. */
import { Command, CommanderError } from 'commander';
import { closest } from './lib/closest.ts';
import {
  exitCodeOf,
  reportFailure,
  reportFailuresAsJson,
  reportFailuresOf,
  usageError,
  type VerbInUse,
} from './lib/failure.ts';
import { EXAMPLES } from './lib/examples.ts';
import { hoistOptions } from './lib/hoist-options.ts';
import { insteadOfFlag, insteadOfVerb } from './lib/instead.ts';
import type { Composition, Verb } from './verb.ts';
import { VERSION } from './lib/version.ts';

const VERBS = {
  run: async () => (await import('./verbs/run.ts')).runVerb,
  create: async () => (await import('./verbs/create.ts')).createVerb,
  ls: async () => (await import('./verbs/ls.ts')).lsVerb,
  inspect: async () => (await import('./verbs/inspect.ts')).inspectVerb,
  stats: async () => (await import('./verbs/stats.ts')).statsVerb,
  exec: async () => (await import('./verbs/exec.ts')).execVerb,
  'exec-server': async () => (await import('./verbs/exec-server.ts')).execServerVerb,
  'run-code': async () => (await import('./verbs/run-code.ts')).runCodeVerb,
  shell: async () => (await import('./verbs/shell.ts')).shellVerb,
  attach: async () => (await import('./verbs/attach.ts')).attachVerb,
  ps: async () => (await import('./verbs/ps.ts')).psVerb,
  kill: async () => (await import('./verbs/kill.ts')).killVerb,
  wait: async () => (await import('./verbs/wait.ts')).waitVerb,
  logs: async () => (await import('./verbs/logs.ts')).logsVerb,
  tool: async () => (await import('./verbs/tool.ts')).toolVerb,
  mcp: async () => (await import('./verbs/mcp.ts')).mcpVerb,
  cp: async () => (await import('./verbs/cp.ts')).cpVerb,
  port: async () => (await import('./verbs/port.ts')).portVerb,
  expose: async () => (await import('./verbs/port.ts')).exposeVerb,
  net: async () => (await import('./verbs/net.ts')).netVerb,
  forward: async () => (await import('./verbs/forward.ts')).forwardVerb,
  snapshot: async () => (await import('./verbs/snapshot.ts')).snapshotVerb,
  turn: async () => (await import('./verbs/turn.ts')).turnVerb,
  rollback: async () => (await import('./verbs/rollback.ts')).rollbackVerb,
  move: async () => (await import('./verbs/move.ts')).moveVerb,
  fork: async () => (await import('./verbs/fork.ts')).forkVerb,
  diff: async () => (await import('./verbs/diff.ts')).diffVerb,
  export: async () => (await import('./verbs/export.ts')).exportVerb,
  tree: async () => (await import('./verbs/tree.ts')).treeVerb,
  update: async () => (await import('./verbs/update.ts')).updateVerb,
  pause: async () => (await import('./verbs/pause.ts')).pauseVerb,
  resume: async () => (await import('./verbs/resume.ts')).resumeVerb,
  stop: async () => (await import('./verbs/stop.ts')).stopVerb,
  start: async () => (await import('./verbs/start.ts')).startVerb,
  rm: async () => (await import('./verbs/rm.ts')).rmVerb,
  image: async () => (await import('./verbs/image.ts')).imageVerb,
  bucket: async () => (await import('./verbs/bucket.ts')).bucketVerb,
  volume: async () => (await import('./verbs/volume.ts')).volumeVerb,
  template: async () => (await import('./verbs/template.ts')).templateVerb,
  project: async () => (await import('./verbs/project.ts')).projectVerb,
  quota: async () => (await import('./verbs/quota.ts')).quotaVerb,
  key: async () => (await import('./verbs/key.ts')).keyVerb,
  events: async () => (await import('./verbs/events.ts')).eventsVerb,
  audit: async () => (await import('./verbs/audit.ts')).auditVerb,
  secret: async () => (await import('./verbs/secret.ts')).secretVerb,
  webhook: async () => (await import('./verbs/webhook.ts')).webhookVerb,
  backup: async () => (await import('./verbs/backup.ts')).backupVerb,
  cert: async () => (await import('./verbs/cert.ts')).certVerb,
  kubernetes: async () => (await import('./verbs/kubernetes.ts')).kubernetesVerb,
  doctor: async () => (await import('./verbs/doctor.ts')).doctorVerb,
  install: async () => (await import('./verbs/install.ts')).installVerb,
  enforce: async () => (await import('./verbs/enforce.ts')).enforceVerb,
  bench: async () => (await import('./verbs/bench.ts')).benchVerb,
  up: async () => (await import('./verbs/up.ts')).upVerb,
  down: async () => (await import('./verbs/down.ts')).downVerb,
  status: async () => (await import('./verbs/status.ts')).statusVerb,
  version: async () => (await import('./verbs/version.ts')).versionVerb,
  completion: async () => (await import('./verbs/completion.ts')).completionVerb,
} satisfies Record<string, () => Promise<Verb>>;

/** The headings of the help, by the first verb below each. */
const HEADINGS: Partial<Record<keyof typeof VERBS, string>> = {
  run: 'Sandboxes:',
  exec: 'Commands in a sandbox:',
  cp: 'Files and ports:',
  snapshot: 'Time travel:',
  update: 'Lifecycle:',
  image: 'Images, templates, projects and records:',
  cert: 'The server:',
};

/** 128 and SIGPIPE. */
const UNREAD = 141;
/** Their first argument is a sandbox, and the rest a command. */
const TAKE_COMMAND = new Set<VerbName>(['exec', 'shell']);

export type VerbName = keyof typeof VERBS;

export async function loadProgram(
  composition: Composition,
  names: readonly VerbName[] = Object.keys(VERBS) as VerbName[],
): Promise<Command> {
  const program = new Command('cay');
  program
    .description('Sandboxes for AI agents on your own machines')
    .version(VERSION, '-V, --version', 'print the version')
    .enablePositionalOptions()
    // Failures are reported in one place, in the words and the format of all others.
    .configureOutput({ outputError: () => {} })
    // The descriptions are wrapped also where 80 columns leave them few beside long names.
    .configureHelp({ minWidthToWrap: 24 })
    .showSuggestionAfterError(false)
    .exitOverride()
    .helpCommand('help [verb]', 'show the help of a verb')
    .addHelpText(
      'after',
      '\n"cay help VERB" shows the flags of a verb. Start with:\n  cay run -- python3 -c \'print(6 * 7)\'',
    )
    .hook('preAction', (_, action) => {
      reportFailuresAsJson(action.opts<{ json?: boolean }>().json === true);
      reportFailuresOf(inUse(action));
    });
  for (const name of names) {
    if (HEADINGS[name]) program.commandsGroup(HEADINGS[name]);
    (await VERBS[name]())(program, composition);
    const examples = EXAMPLES[name];
    if (examples)
      program.commands.at(-1)!.addHelpText('after', `\n${examples.map((line) => `  ${line}`).join('\n')}`);
  }
  return program;
}

function inUse(action: Command): VerbInUse {
  const names: string[] = [];
  for (let at: Command | null = action; at?.parent; at = at.parent) names.unshift(at.name());
  return { path: names.join(' '), flags: action.options.flatMap(({ long }) => long ?? []) };
}

function isVerb(name: string | undefined): name is VerbName {
  return name !== undefined && Object.hasOwn(VERBS, name);
}

/** The verb that was asked for, none for the version, all to list them. */
function neededBy(first: string | undefined): VerbName[] | undefined {
  if (isVerb(first)) return [first];
  return first === '--version' || first === '-V' ? [] : undefined;
}

/** Runs the command line and gives its exit code. */
export async function runCli(composition: Composition, given: readonly string[]): Promise<number> {
  exitWhenUnread();
  const args = given[0] === 'help' && given.length > 1 ? [...given.slice(1), '--help'] : [...given];
  const dashes = args.indexOf('--');
  reportFailuresAsJson((dashes < 0 ? args : args.slice(0, dashes)).includes('--json'));
  let program: Command | undefined;
  try {
    const [first] = args;
    if (first !== undefined && !first.startsWith('-') && first !== 'help' && !isVerb(first))
      throw unknownVerb(first);
    program = await loadProgram(composition, neededBy(first));
    await program.parseAsync(isVerb(first) && TAKE_COMMAND.has(first) ? hoisted(program, args) : args, {
      from: 'user',
    });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Help and the version are thrown too, with 0.
    if (error instanceof CommanderError && (error.exitCode === 0 || error.code === 'commander.help'))
      return 0;
    const known = error instanceof CommanderError ? usageOf(error, args, program) : error;
    reportFailure(known);
    return exitCodeOf(known);
  }
}

function hoisted(program: Command, [verb, ...rest]: readonly string[]): string[] {
  return [verb!, ...hoistOptions(program.commands[0]!, rest)];
}

function unknownVerb(verb: string): Error {
  const meant = closest(verb, Object.keys(VERBS));
  return usageError(
    `There is no verb "${verb}"`,
    insteadOfVerb(verb) ??
      (meant === undefined ? '"cay help" lists the verbs' : `did you mean "cay ${meant}"?`),
  );
}

/** What the parser refuses, as a sentence without "error:", and with what to do. */
function usageOf(
  { message, code }: CommanderError,
  args: readonly string[],
  program: Command | undefined,
): Error {
  const text = message
    .replace(/^error: /, '')
    .replace(/\.$/, '')
    .replace(/^command-argument value ('.*') is invalid for argument '(.*?)'\. /s, '$2 cannot be $1: ')
    .replace(/^option '(?:-\w, )?(--[\w-]+)[^']*' argument ('.*') is invalid\. /s, '$1 cannot be $2: ');
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  const flag = code === 'commander.unknownOption' ? /'([^']+)'/.exec(message)?.[1] : undefined;
  const [verb, sub] = args;
  const parent = program?.commands.find((command) => command.name() === verb);
  const command = parent?.commands.find((one) => one.name() === sub) ?? parent;
  const flags = command?.options.flatMap(({ long }) => long ?? []) ?? [];
  const name = [parent?.name(), command === parent ? undefined : sub].filter(Boolean).join(' ');
  return usageError(
    sentence,
    (flag === undefined ? undefined : flagHint(flag, flags)) ??
      `"cay ${name === '' ? '' : `${name} `}--help" lists what can be given`,
  );
}

function flagHint(flag: string, flags: readonly string[]): string | undefined {
  const meant = closest(flag, flags);
  return meant === undefined ? insteadOfFlag(flag) : `did you mean ${meant}?`;
}

/** The reader of our output may stop at any time, as `head` does. A verb that has to clean up listens too. */
function exitWhenUnread(): void {
  process.stdout.on('error', () => {
    if (process.stdout.listenerCount('error') === 1) process.exit(UNREAD);
  });
}
