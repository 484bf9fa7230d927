/** The command line as a tree. One verb's file is read when only that verb is needed. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { USAGE, exitCodeOf, reportFailure } from './lib/failure.ts';
import type { Composition, Verb } from './verb.ts';

const VERBS = {
  run: async () => (await import('./verbs/run.ts')).runVerb,
  create: async () => (await import('./verbs/create.ts')).createVerb,
  ls: async () => (await import('./verbs/ls.ts')).lsVerb,
  inspect: async () => (await import('./verbs/inspect.ts')).inspectVerb,
  exec: async () => (await import('./verbs/exec.ts')).execVerb,
  shell: async () => (await import('./verbs/shell.ts')).shellVerb,
  attach: async () => (await import('./verbs/attach.ts')).attachVerb,
  wait: async () => (await import('./verbs/wait.ts')).waitVerb,
  logs: async () => (await import('./verbs/logs.ts')).logsVerb,
  cp: async () => (await import('./verbs/cp.ts')).cpVerb,
  forward: async () => (await import('./verbs/forward.ts')).forwardVerb,
  stats: async () => (await import('./verbs/stats.ts')).statsVerb,
  snapshot: async () => (await import('./verbs/snapshot.ts')).snapshotVerb,
  turn: async () => (await import('./verbs/turn.ts')).turnVerb,
  rollback: async () => (await import('./verbs/rollback.ts')).rollbackVerb,
  fork: async () => (await import('./verbs/fork.ts')).forkVerb,
  diff: async () => (await import('./verbs/diff.ts')).diffVerb,
  export: async () => (await import('./verbs/export.ts')).exportVerb,
  tree: async () => (await import('./verbs/tree.ts')).treeVerb,
  pause: async () => (await import('./verbs/pause.ts')).pauseVerb,
  resume: async () => (await import('./verbs/resume.ts')).resumeVerb,
  stop: async () => (await import('./verbs/stop.ts')).stopVerb,
  start: async () => (await import('./verbs/start.ts')).startVerb,
  rm: async () => (await import('./verbs/rm.ts')).rmVerb,
  template: async () => (await import('./verbs/template.ts')).templateVerb,
  key: async () => (await import('./verbs/key.ts')).keyVerb,
  events: async () => (await import('./verbs/events.ts')).eventsVerb,
  audit: async () => (await import('./verbs/audit.ts')).auditVerb,
  webhook: async () => (await import('./verbs/webhook.ts')).webhookVerb,
  backup: async () => (await import('./verbs/backup.ts')).backupVerb,
  cert: async () => (await import('./verbs/cert.ts')).certVerb,
  kubernetes: async () => (await import('./verbs/kubernetes.ts')).kubernetesVerb,
  doctor: async () => (await import('./verbs/doctor.ts')).doctorVerb,
  bench: async () => (await import('./verbs/bench.ts')).benchVerb,
  up: async () => (await import('./verbs/up.ts')).upVerb,
  down: async () => (await import('./verbs/down.ts')).downVerb,
  status: async () => (await import('./verbs/status.ts')).statusVerb,
  completion: async () => (await import('./verbs/completion.ts')).completionVerb,
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
