/** What an agent changed: a list, how much, or a patch. */
import { posix } from 'node:path';
import { bytesOf, type DiffStat, type FileChange, type Sandbox } from '@cay/sdk/client';
import { atSnapshot } from '../lib/at-snapshot.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { colour, print, printJson, printable } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';
import { writeOut } from '../lib/write-out.ts';
import { writeWhole } from '../lib/write-whole.ts';

interface Options extends CommonOptions {
  stat?: boolean;
  patch?: boolean;
  path?: string[];
  output?: string;
  relative?: string | true;
}

const gather = (text: string, before: string[] = []) => [...before, text];

export const diffVerb: Verb = (program) => {
  const command = program
    .command('diff')
    .description('show what has changed between two snapshots or turns, or since then')
    .argument('<sandbox>', 'its id, name or the beginning of its id')
    .argument('[from]', 'a snapshot’s id or name, or a turn’s number (default: the newest)')
    .argument('[to]', 'the same, or "now"', 'now')
    .option('--stat', 'how much has changed')
    .option('--patch', 'a patch that "git apply" takes in /, or with --relative in a directory')
    .option('--relative [dir]', 'with --patch: as seen from this directory (default: the working directory)')
    .option('--path <path>', 'only this path and what is below it; may be repeated', gather)
    .option('-o, --output <file>', 'write the patch to a file');
  withCommonOptions(command)
    .addHelpText(
      'after',
      `
  cay diff my-box                                  what changed since the newest snapshot
  cay diff my-box 3 5 --stat                       how much changed between two turns
  cay diff my-box 3 --patch --relative app > p     for "git apply" in a copy of /home/user/app`,
    )
    .action(async (ref: string, from: string | undefined, to: string, options: Options) => {
      if (options.relative !== undefined && !options.patch && options.output === undefined)
        throw usageError('--relative needs --patch or --output');
      const sandbox = await openClient(options).sandbox(ref);
      const since = from ?? sandbox.info.base;
      if (since === null)
        throw usageError(
          `Sandbox "${ref}" has no snapshot to compare with`,
          '"cay turn" or "cay snapshot take" makes one',
        );
      const paths = options.path ? { paths: options.path } : {};
      const { output, json } = options;
      await atSnapshot(ref, async () => {
        if (options.patch || output !== undefined) {
          const relative = relativeTo(options, sandbox);
          const patch = patchOf(sandbox, since, to, { ...paths, ...relative });
          return output === undefined ? writeOut(patch) : writeWhole(output, patch, { mode: 0o644 });
        }
        if (options.stat) {
          const stat = await sandbox.diffStat(since, to, paths);
          return json ? printJson(stat) : printStat(stat);
        }
        if (json) return printJson(await Array.fromAsync(sandbox.diff(since, to, paths)));
        for await (const change of sandbox.diff(since, to, paths)) print(line(change));
      });
    });
};

const MARKS = {
  added: colour.green('A'),
  removed: colour.red('D'),
  modified: colour.yellow('M'),
  renamed: colour.cyan('R'),
};

function line(change: FileChange): string {
  const { path, from, before, after } = change;
  const more = [
    change.mode && before && after && `mode ${before.mode.toString(8)} → ${after.mode.toString(8)}`,
    change.owner && before && after && `owner ${before.uid}:${before.gid} → ${after.uid}:${after.gid}`,
  ].filter(Boolean);
  const name = from === undefined ? printable(path) : `${printable(from)} → ${printable(path)}`;
  return `${MARKS[change.change]} ${name}${change.type === 'directory' ? '/' : ''}${more.length > 0 ? colour.dim(`  (${more.join(', ')})`) : ''}`;
}

async function* patchOf(
  sandbox: Sandbox,
  from: string,
  to: string,
  chosen: { paths?: string[]; relative?: string },
): AsyncGenerator<Uint8Array> {
  yield* bytesOf(await sandbox.patch(from, to, chosen));
}

function relativeTo({ relative }: Options, { info }: Sandbox): { relative?: string } {
  if (relative === undefined) return {};
  if (relative === true) return { relative: info.workdir };
  return { relative: relative.startsWith('/') ? relative : posix.join(info.workdir, relative) };
}

const BAR = 40;
const many = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`;

function printStat(found: DiffStat): void {
  const widest = Math.max(0, ...found.files.map(({ path }) => path.length));
  const most = Math.max(1, ...found.files.map(({ insertions, deletions }) => insertions + deletions));
  const bar = (count: number, sign: string) => sign.repeat(Math.ceil((count / most) * Math.min(BAR, most)));
  for (const { path, insertions, deletions, binary } of found.files) {
    const lines = `${insertions + deletions} ${colour.green(bar(insertions, '+'))}${colour.red(bar(deletions, '-'))}`;
    print(` ${printable(path).padEnd(widest)} | ${binary ? 'binary' : lines}`.trimEnd());
  }
  print(
    ` ${many(found.files.length, 'file')} changed, ${many(found.insertions, 'insertion')}(+), ${many(found.deletions, 'deletion')}(-)`,
  );
}
