import { readFile } from 'node:fs/promises';
import { describeTools, type ToolDialect, type ToolFormat, type ToolResult } from '@cay/sdk/client';
import { Option } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { note, print, printJson } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  input?: string;
  dialect?: ToolDialect;
  callId?: string;
  timeout?: number;
  snapshot?: boolean;
}

const dialect = () =>
  new Option('--dialect <dialect>', 'how a family of models calls them (default: claude)').choices([
    'claude',
    'codex',
    'anthropic',
  ]);

export const toolVerb: Verb = (program) => {
  const tool = program.command('tool').description('agent tools: read, edit, grep, bash and so on');
  withCommonOptions(
    tool
      .command('call')
      .description('call an agent tool as a model would, and print what the model gets')
      .argument('<sandbox>', 'id, name or beginning of an id')
      .argument('<tool>', 'its name, such as "grep"')
      .option('-i, --input <json>', 'its parameters as JSON, or "@file"; default "{}"')
      .addOption(dialect())
      .option('--call-id <id>', 'one id runs once, however often it is sent')
      .option('--timeout <time>', 'how long it may take', parseDuration)
      .option('--snapshot', 'take a snapshot of the files after the call'),
  )
    .addHelpText(
      'after',
      `
Exits with the code of the command that it ran, or with 1 if the tool could not do what was asked.

  cay tool call my-box grep -i '{"pattern": "TODO", "output_mode": "content"}'
  cay tool call my-box edit -i '{"file_path": "a.py", "old_string": "1", "new_string": "2"}'`,
    )
    .action(async (ref: string, name: string, options: Options) => {
      const sandbox = await openClient(options).sandbox(ref);
      const result = await sandbox.tool(name, await inputOf(options.input), {
        ...(options.dialect !== undefined && { dialect: options.dialect }),
        ...(options.callId !== undefined && { toolCallId: options.callId }),
        ...(options.timeout !== undefined && { timeoutMs: options.timeout }),
        ...(options.snapshot && { snapshot: true }),
      });
      if (options.json) printJson(result);
      else show(result);
      process.exitCode = result.exitCode ?? (result.isError ? 1 : 0);
    });
  withCommonOptions(
    tool
      .command('ls')
      .description('list the tools of a dialect; --json prints them as a model API takes them')
      .addOption(dialect())
      .addOption(
        new Option('--format <format>', 'for which API (default: anthropic)').choices([
          'anthropic',
          'openai',
          'mcp',
          'ai-sdk',
        ]),
      ),
  ).action(async (options: CommonOptions & { dialect?: ToolDialect; format?: ToolFormat }) => {
    const { dialect, format } = options;
    const { tools } = await describeTools({ ...openClient(options).options, dialect, format });
    if (options.json) return printJson(tools);
    for (const { name } of tools) print(String(name));
  });
};

async function inputOf(given = '{}'): Promise<Record<string, unknown>> {
  const text = given.startsWith('@') ? await readFile(given.slice(1), 'utf8') : given;
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>;
  } catch {
    // Reported below.
  }
  throw usageError('The input of a tool is a JSON object', `such as '{"pattern": "TODO"}'`);
}

function show({ content, snapshot }: ToolResult): void {
  for (const block of content) {
    if (block.type === 'text') print(block.text);
    else if (block.type === 'image') note(`an image (${block.mimeType}); --json has it`);
    else note(`a document (${block.resource.mimeType}); --json has it`);
  }
  if (snapshot !== undefined) note(`the files after it are ${snapshot}`);
}
