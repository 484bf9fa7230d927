import { describe, expect, it } from 'vitest';
import { loadProgram } from '../program.ts';
import type { Composition } from '../verb.ts';

const program = await loadProgram({ clusterBackends: [] as readonly string[] } as Composition);
const verbs = program.commands.filter(({ commands }) => commands.length === 0);

function helpOf(command: (typeof verbs)[number]): string {
  let text = '';
  command.configureOutput({ writeOut: (part) => (text += part) });
  command.outputHelp();
  return text;
}

describe('the help of each verb', () => {
  it.each(verbs.map((command) => [command.name(), command] as const))(
    'has an example: %s',
    (name, command) => {
      const examples = [...helpOf(command).matchAll(/^ {2}(?:\S.* \| )?cay (\S+)(.*)$/gm)].filter(
        ([, verb]) => verb === name,
      );
      expect(examples).not.toEqual([]);
      // Up to the command that runs inside, which has flags of its own.
      const words = examples.flatMap(([, , rest]) => rest!.split(' -- ')[0]!.split(' '));
      const flags = words.flatMap((word) =>
        /^-\w\w+$/.test(word) ? Array.from(word.slice(1), (one) => `-${one}`) : word,
      );
      const known = command.options.flatMap(({ long, short }) => [long, short]);
      expect(flags.filter((flag) => /^--?[a-z]/.test(flag) && !known.includes(flag))).toEqual([]);
    },
  );
});
