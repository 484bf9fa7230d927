/** What an agent changed: a list, how much, or a patch. */
import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FileChange, Sandbox } from '@cay/sdk/client';
import { openClient } from './client.ts';
import { withCommonOptions } from './common-options.ts';
import { usageError } from './failure.ts';
import { colour, print, printJson, printable } from './output.ts';
import type { CommonOptions } from './settings.ts';
import type { Verb } from './verb.ts';

interface Options extends CommonOptions {
  stat?: boolean;
  patch?: boolean;
  path?: string[];
  output?: string;
}

const many = (text: string, before: string[] = []) => [...before, text];

export const diffVerb: Verb = (program) => {
  const command = program
    .command('diff')
    .description('tell what has changed between two snapshots or turns, or since then')
    .argument('<sandbox>', 'its id, name or the beginning of its id')
    .argument('[from]', 'a snapshot’s id or name, or a turn’s number (default: the newest)')
    .argument('[to]', 'the same, or "now"', 'now')
    .option('--stat', 'how much has changed')
    .option('--patch', 'a patch that "git apply" takes')
    .option('--path <path>', 'only this path and what is below it; may be repeated', many)
    .option('-o, --output <file>', 'write the patch to a file');
  withCommonOptions(command).action(async (ref: string, from: string | undefined, to: string, options: Options) => {
    const sandbox = await openClient(options).sandbox(ref);
    const since = from ?? sandbox.info.base;
    if (since === null) throw usageError(`Sandbox "${ref}" has no snapshot to compare with`, '"cay turn" or "cay snapshot take" makes one');
    const paths = options.path ? { paths: options.path } : {};
    if (options.patch || options.output !== undefined) return patch(sandbox, since, to, paths, options.output);
    if (options.stat) return stat(sandbox, since, to, paths, options.json);
    if (options.json) {
      const changes: FileChange[] = [];
      for await (const change of sandbox.diff(since, to, paths)) changes.push(change);
      return printJson(changes);
    }
    for await (const change of sandbox.diff(since, to, paths)) print(line(change));
  });
};

const MARKS = { added: colour.green('A'), removed: colour.red('D'), modified: colour.yellow('M'), renamed: colour.cyan('R') };

function line(change: FileChange): string {
  const { path, from, before, after } = change;
  const more = [
    change.mode && before && after && `mode ${before.mode.toString(8)} → ${after.mode.toString(8)}`,
    change.owner && before && after && `owner ${before.uid}:${before.gid} → ${after.uid}:${after.gid}`,
  ].filter(Boolean);
  const name = from === undefined ? printable(path) : `${printable(from)} → ${printable(path)}`;
  return `${MARKS[change.change]} ${name}${change.type === 'directory' ? '/' : ''}${more.length > 0 ? colour.dim(`  (${more.join(', ')})`) : ''}`;
}

async function patch(sandbox: Sandbox, from: string, to: string, paths: { paths?: string[] }, file: string | undefined): Promise<void> {
  const response = await sandbox.patch(from, to, paths);
  const body = Readable.from(response.body as unknown as AsyncIterable<Uint8Array>);
  await pipeline(body, file === undefined ? process.stdout : createWriteStream(file), { end: file !== undefined });
}

const BAR = 40;

async function stat(sandbox: Sandbox, from: string, to: string, paths: { paths?: string[] }, json: boolean | undefined): Promise<void> {
  const found = await sandbox.diffStat(from, to, paths);
  if (json) return printJson(found);
  const widest = Math.max(0, ...found.files.map(({ path }) => path.length));
  const most = Math.max(1, ...found.files.map(({ insertions, deletions }) => insertions + deletions));
  const bar = (count: number, sign: string) => sign.repeat(Math.ceil((count / most) * Math.min(BAR, most)));
  for (const { path, insertions, deletions, binary } of found.files) {
    const much = binary ? 'binary' : `${insertions + deletions} ${colour.green(bar(insertions, '+'))}${colour.red(bar(deletions, '-'))}`;
    print(` ${printable(path).padEnd(widest)} | ${much}`);
  }
  print(` ${found.files.length} files changed, ${found.insertions} insertions(+), ${found.deletions} deletions(-)`);
}
