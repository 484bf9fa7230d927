import { Argument, type Command } from 'commander';
import { print } from '../lib/output.ts';
import type { Composition, Verb } from '../verb.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

export const completionVerb: Verb = (program, composition) => {
  program
    .command('completion')
    .description('print a completion script of verbs, flags and sandboxes for a shell')
    .addArgument(new Argument('<shell>').choices(SHELLS))
    .addHelpText(
      'after',
      '\n  source <(cay completion bash)\n  cay completion zsh > ~/.zfunc/_cay\n  cay completion fish > ~/.config/fish/completions/cay.fish',
    )
    .action(async (shell: (typeof SHELLS)[number]) => print(await completionScript(shell, composition)));
};

/** Verbs whose first argument is a sandbox. */
const NAMES_SANDBOX = [
  'inspect',
  'exec',
  'shell',
  'attach',
  'wait',
  'logs',
  'forward',
  'stats',
  'stop',
  'start',
  'rm',
  'cp',
  'turn',
  'rollback',
  'move',
  'fork',
  'diff',
  'export',
  'tree',
  'pause',
  'resume',
  'status',
  'ps',
  'kill',
  'update',
  'expose',
];
const LIST = `cay ls --json 2>/dev/null | grep -oE '"(id|name)":"[^"]+"' | cut -d'"' -f4`;

export async function completionScript(
  shell: (typeof SHELLS)[number],
  composition: Composition,
): Promise<string> {
  const { loadProgram } = await import('../program.ts');
  const { commands } = await loadProgram(composition);
  const flags = (command: Command) => command.options.map(({ long }) => long).filter((long) => long != null);
  const subs = (command: Command) => command.commands.map((sub) => sub.name());
  if (shell === 'fish') return fish(commands, flags, subs);
  const words = commands.map(
    (command) =>
      `    ${command.name()}) words="${[...subs(command), ...flags(command), '--help'].join(' ')}" ;;`,
  );
  const body = `  local current="\${COMP_WORDS[COMP_CWORD]}" verb="\${COMP_WORDS[1]}" words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${commands.map((command) => command.name()).join(' ')} help" -- "$current"))
    return
  fi
  case "$verb" in
${words.join('\n')}
  esac
  case "$verb" in
    ${NAMES_SANDBOX.join('|')}) case "$current" in -*) ;; *) words="$(${LIST})" ;; esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  case "$verb:$current" in cp:*) COMPREPLY+=($(compgen -f -- "$current")) ;; esac`;
  const bash = `_cay() {\n${body}\n}\ncomplete -F _cay cay`;
  // zsh runs completions of bash with this module.
  return shell === 'bash' ? bash : `#compdef cay\nautoload -U +X bashcompinit && bashcompinit\n${bash}`;
}

function fish(
  commands: readonly Command[],
  flags: (command: Command) => string[],
  subs: (command: Command) => string[],
): string {
  const quoted = (text: string) => `'${text.replaceAll("'", String.raw`\'`)}'`;
  const lines = ['complete -c cay -f'];
  for (const command of commands) {
    const name = command.name();
    lines.push(`complete -c cay -n __fish_use_subcommand -a ${name} -d ${quoted(command.description())}`);
    const when = `-n '__fish_seen_subcommand_from ${name}'`;
    for (const sub of subs(command)) lines.push(`complete -c cay ${when} -a ${sub}`);
    for (const flag of flags(command)) lines.push(`complete -c cay ${when} -l ${flag.slice(2)}`);
    if (NAMES_SANDBOX.includes(name)) lines.push(`complete -c cay ${when} -a ${quoted(`(${LIST})`)}`);
  }
  lines.push("complete -c cay -n '__fish_seen_subcommand_from cp' -F");
  return lines.join('\n');
}
