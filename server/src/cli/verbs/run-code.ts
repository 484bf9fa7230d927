import { readFileSync } from 'node:fs';
import type { CodeEvent, CodeLanguage } from '@cay/sdk/client';
import { Option } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { pairs, parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

const LANGUAGES: CodeLanguage[] = ['python', 'javascript', 'typescript', 'bash'];

type Options = CommonOptions & {
  code?: string;
  language?: CodeLanguage;
  context?: string;
  env?: Record<string, string>;
  timeout?: number;
};

export const runCodeVerb: Verb = (program) => {
  const command = program
    .command('run-code')
    .alias('code')
    .description('run code that keeps its variables for the next run')
    .argument('<sandbox>', 'id, name or beginning of an id')
    .argument('[file]', 'a file of yours with the code; standard input if absent')
    .option('-c, --code <code>', 'the code itself')
    .addOption(new Option('-l, --language <language>', 'default: python').choices(LANGUAGES))
    .option('--context <id>', 'the context that it runs in, instead of the one of its language')
    .option('-e, --env <key=value>', 'a variable of this run alone; may be repeated', pairs(process.env))
    .option('--timeout <time>', 'interrupt it after this time', parseDuration);
  withCommonOptions(command)
    .addHelpText(
      'after',
      `
Prints output as it comes, and then the value of the last expression. Exits with 1 if the code throws.
--json shows every event on a line of its own, with results in all forms that they have.

  cay run-code my-box -c 'x = 6 * 7'
  cay run-code my-box -c 'x'
  cay run-code my-box analysis.py
  cay run-code my-box -l typescript -c 'const y: number = 1; y'`,
    )
    .action(async (ref: string, file: string | undefined, options: Options) => {
      const { language, context, env, timeout } = options;
      const sandbox = await openClient(options).sandbox(ref);
      const code = options.code ?? readFileSync(file ?? 0, 'utf8');
      const events = sandbox.interpreter.stream(code, {
        ...(language && { language }),
        ...(context !== undefined && { context }),
        ...(env && { env }),
        ...(timeout !== undefined && { timeoutMs: timeout }),
      });
      for await (const event of events) {
        if (options.json) printJson(event);
        else show(event);
        if (event.type === 'end' && event.outcome !== 'completed') process.exitCode = 1;
      }
    });
};

function show(event: CodeEvent): void {
  switch (event.type) {
    case 'stdout':
      process.stdout.write(event.text);
      break;
    case 'stderr':
      process.stderr.write(event.text);
      break;
    case 'result':
      print(event.text ?? '');
      break;
    case 'error':
      process.stderr.write(`${event.traceback.trimEnd()}\n`);
      break;
    case 'started':
    case 'end':
      break;
  }
}
