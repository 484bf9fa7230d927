/** The command line as a tree. One verb's file is read when only that verb is needed. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { USAGE, exitCodeOf, reportFailure } from './failure.ts';
import type { Composition, Verb } from './verb.ts';

const VERBS = {
  run: async () => (await import('./run.ts')).runVerb,
  create: async () => (await import('./create.ts')).createVerb,
  ls: async () => (await import('./ls.ts')).lsVerb,
  inspect: async () => (await import('./inspect.ts')).inspectVerb,
  exec: async () => (await import('./exec.ts')).execVerb,
  shell: async () => (await import('./shell.ts')).shellVerb,
  attach: async () => (await import('./attach.ts')).attachVerb,
  wait: async () => (await import('./wait.ts')).waitVerb,
  logs: async () => (await import('./logs.ts')).logsVerb,
  cp: async () => (await import('./cp.ts')).cpVerb,
  forward: async () => (await import('./forward.ts')).forwardVerb,
  stats: async () => (await import('./stats.ts')).statsVerb,
  snapshot: async () => (await import('./snapshot.ts')).snapshotVerb,
  turn: async () => (await import('./turn.ts')).turnVerb,
  rollback: async () => (await import('./rollback.ts')).rollbackVerb,
  fork: async () => (await import('./fork.ts')).forkVerb,
  diff: async () => (await import('./diff.ts')).diffVerb,
  export: async () => (await import('./export.ts')).exportVerb,
  tree: async () => (await import('./tree.ts')).treeVerb,
  pause: async () => (await import('./pause.ts')).pauseVerb,
  resume: async () => (await import('./resume.ts')).resumeVerb,
  stop: async () => (await import('./stop.ts')).stopVerb,
  start: async () => (await import('./start.ts')).startVerb,
  rm: async () => (await import('./rm.ts')).rmVerb,
  template: async () => (await import('./template.ts')).templateVerb,
  key: async () => (await import('./key.ts')).keyVerb,
  events: async () => (await import('./events.ts')).eventsVerb,
  audit: async () => (await import('./audit.ts')).auditVerb,
  webhook: async () => (await import('./webhook.ts')).webhookVerb,
  backup: async () => (await import('./backup.ts')).backupVerb,
  cert: async () => (await import('./cert.ts')).certVerb,
  kubernetes: async () => (await import('./kubernetes.ts')).kubernetesVerb,
  doctor: async () => (await import('./doctor.ts')).doctorVerb,
  bench: async () => (await import('./bench.ts')).benchVerb,
  up: async () => (await import('./up.ts')).upVerb,
  down: async () => (await import('./down.ts')).downVerb,
  status: async () => (await import('./status.ts')).statusVerb,
  completion: async () => (await import('./completion.ts')).completionVerb,
} satisfies Record<string, () => Promise<Verb>>;

/** 128 and SIGPIPE. */
const UNREAD = 141;
const VERSION = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;

export type VerbName = keyof typeof VERBS;

export async function loadProgram(
  composition: Composition,
  names: readonly VerbName[] = Object.keys(VERBS) as VerbName[],
): Promise<Command> {
  const program = new Command('cay');
  program
    .description('Sandboxes for AI agents on your own machines')
    .version(VERSION, '-V, --version', 'tell the version')
    .enablePositionalOptions()
    .showHelpAfterError('hint: --help tells what can be given')
    .showSuggestionAfterError()
    .exitOverride()
    .helpCommand(true);
  for (const name of names) (await VERBS[name]())(program, composition);
  return program;
}

function isVerb(name: string | undefined): name is VerbName {
  return name !== undefined && Object.hasOwn(VERBS, name);
}

/** The verb that was asked for, none for the version, all to choose from or to list. */
function neededBy(first: string | undefined): VerbName[] | undefined {
  if (isVerb(first)) return [first];
  return first === '--version' || first === '-V' ? [] : undefined;
}

/** Runs the command line and gives its exit code. */
export async function runCli(composition: Composition, args: readonly string[]): Promise<number> {
  exitWhenUnread();
  const program = await loadProgram(composition, neededBy(args[0]));
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Help and the version are thrown too, with 0.
    if (error instanceof CommanderError)
      return error.exitCode === 0 || error.code === 'commander.help' ? 0 : USAGE;
    reportFailure(error);
    return exitCodeOf(error);
  }
}

/**
 * Whoever reads our output may stop at any time, as `head` does. A verb that has to clean up first listens
 * too.
 */
function exitWhenUnread(): void {
  process.stdout.on('error', () => {
    if (process.stdout.listenerCount('error') === 1) process.exit(UNREAD);
  });
}
