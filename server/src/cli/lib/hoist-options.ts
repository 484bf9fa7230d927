/**
 * Moves flags between a sandbox and its command in front of the sandbox.
 *
 * `cay exec box --data DIR -- ls` would else run a program named `--data`: what follows the first argument
 * is the command's. A program whose name begins with a dash can still be run, after `--`.
 */
import type { Command } from 'commander';

/** `args` are those after the verb. */
export function hoistOptions(command: Command, args: readonly string[]): string[] {
  const sandbox = skipOptions(command, args, 0);
  if (sandbox >= args.length || args[sandbox] === '--') return [...args];
  const program = skipOptions(command, args, sandbox + 1);
  return [
    ...args.slice(0, sandbox),
    ...args.slice(sandbox + 1, program),
    args[sandbox]!,
    ...args.slice(program),
  ];
}

function skipOptions(command: Command, args: readonly string[], from: number): number {
  let at = from;
  while (at < args.length && /^-./.test(args[at]!) && args[at] !== '--')
    at += takesNext(command, args[at]!) ? 2 : 1;
  return Math.min(at, args.length);
}

function takesNext(command: Command, token: string): boolean {
  const { options } = command;
  if (token.startsWith('--'))
    return !token.includes('=') && options.some(({ long, required }) => long === token && required);
  for (const [index, letter] of token.slice(1).split('').entries()) {
    const option = options.find(({ short }) => short === `-${letter}`);
    // The rest of a group of letters is the value of the first that takes one.
    if (option?.required) return index === token.length - 2;
  }
  return false;
}
