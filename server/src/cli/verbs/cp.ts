/** Copies files and directories between this machine and a sandbox. */
import { mkdir, stat } from 'node:fs/promises';
import { basename, dirname, join, posix, resolve } from 'node:path';
import { isCayError, type Sandbox } from '@cay/sdk/client';
import { pack } from '../lib/archive/pack.ts';
import { unpack } from '../lib/archive/unpack.ts';
import { atMost } from '../lib/at-most.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { fileChunks } from '../lib/file-chunks.ts';
import { errorColour, note, printJson, printable } from '../lib/output.ts';
import { pathError } from '../lib/path-error.ts';
import { showProgress } from '../lib/progress.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { parseSize } from '../lib/units.ts';
import type { Verb } from '../verb.ts';
import { counted, writeWhole } from '../lib/write-whole.ts';

type Options = CommonOptions & { user?: string; limit?: number };

const HOME = '/home/user';
/** What a sandbox may put on this machine without --limit. */
const DEFAULT_LIMIT = 64 * 1024 ** 3;

interface Copied {
  from: string;
  to: string;
  bytes: number;
  leftOut: { name: string; why: string }[];
}

export const cpVerb: Verb = (program) => {
  const command = program
    .command('cp')
    .description('copy files and directories into a sandbox or out of it')
    .argument('<from>', 'a path here, or SANDBOX:PATH')
    .argument('<to>', 'the other of the two; a directory that exists is copied into')
    .option('-u, --user <user>', 'the user who reads and writes the files in the sandbox')
    .option('--limit <size>', 'how much may come out of a sandbox at most (default: 64G)', parseSize);
  withCommonOptions(command)
    .addHelpText(
      'after',
      '\n  cay cp ./project my-box:/home/user/project\n  cay cp my-box:/home/user/result.csv .\n\nSymlinks that would lead out of a copied directory are left out and reported.',
    )
    .action(async (from: string, to: string, options: Options) => {
      if (from === '-' || to === '-')
        throw usageError(
          'Standard input and output cannot be copied',
          '"cay exec -i SANDBOX -- tee PATH" writes a file from a stream, "cay exec SANDBOX -- cat PATH" reads one',
        );
      const [source, target] = [parsePlace(from), parsePlace(to)];
      if (source.ref === undefined && target.ref === undefined)
        throw usageError('Neither place is in a sandbox', 'write one as SANDBOX:PATH');
      if (source.ref !== undefined && target.ref !== undefined)
        throw usageError('Only one of the places can be in a sandbox');
      const client = openClient(options);
      const sandbox = await client.sandbox((source.ref ?? target.ref)!);
      const act = source.ref === undefined ? copyIn : copyOut;
      const { leftOut, ...done } = await act(sandbox, source.path, target.path, options);
      if (options.json) return printJson({ ...done, leftOut });
      for (const { name, why } of leftOut)
        note(`${errorColour.yellow('left out:')} ${printable(name)}: ${printable(why)}`);
    });
};

/**
 * A path may have a colon in it: one that begins with `/` or `.` is always a path here. In a sandbox, a
 * relative path is below the home directory, and no path is that directory.
 */
export function parsePlace(text: string): { ref?: string; path: string } {
  const match = /^([A-Za-z0-9][A-Za-z0-9_-]*):(.*)$/s.exec(text);
  if (!match) return { path: text };
  return { ref: match[1]!, path: match[2]!.startsWith('/') ? match[2]! : `${HOME}/${match[2]!}` };
}

async function copyIn(sandbox: Sandbox, from: string, to: string, { user }: Options): Promise<Copied> {
  const source = await stat(from).catch((cause: unknown) => {
    throw pathError('read', from, cause);
  });
  const intoDirectory = to.endsWith('/') || (await remoteType(sandbox, to, user)) === 'directory';
  const path = intoDirectory ? posix.join(to, basename(resolve(from))) : to;
  const leftOut: Copied['leftOut'] = [];
  const progress = showProgress(
    `${basename(resolve(from))} →`,
    source.isDirectory() ? undefined : source.size,
  );
  let bytes = 0;
  const onProgress = (done: number) => progress.bytes((bytes = done));
  if (source.isDirectory()) {
    await sandbox.files.mkdir(path, { user });
    await sandbox.files.upload(
      path,
      pack(from, {
        onProgress,
        onLeftOut: (name) => leftOut.push({ name, why: 'it is neither file, directory nor symlink' }),
      }),
      { user },
    );
  } else {
    await sandbox.files.write(path, counted(fileChunks(from), onProgress), {
      user,
      mode: source.mode & 0o777,
    });
  }
  progress.finish();
  return { from, to: `${sandbox.id}:${path}`, bytes, leftOut };
}

async function copyOut(
  sandbox: Sandbox,
  from: string,
  to: string,
  { user, limit = DEFAULT_LIMIT }: Options,
): Promise<Copied> {
  const source = await sandbox.files.stat(from, { user, follow: true });
  const target = await stat(to).catch(() => undefined);
  const path = target?.isDirectory() || to.endsWith('/') ? join(to, nameOf(from)) : to;
  const progress = showProgress(
    `${printable(nameOf(from))} →`,
    source.type === 'directory' ? undefined : source.sizeBytes,
  );
  let done: Copied = { from: `${sandbox.id}:${from}`, to: path, bytes: 0, leftOut: [] };
  if (source.type === 'directory') {
    await mkdir(path, { recursive: true });
    const { bytes, leftOut } = await unpack(
      path,
      atMost(sandbox.files.download(from, { user }), limit),
      (count) => progress.bytes(count),
    );
    done = { ...done, bytes, leftOut };
  } else {
    await mkdir(dirname(path), { recursive: true });
    await writeWhole(
      path,
      counted(atMost(sandbox.files.stream(from, { user }), limit), (count) =>
        progress.bytes((done.bytes = count)),
      ),
      { mode: source.mode & 0o777 },
    );
  }
  progress.finish();
  return done;
}

/** The sandbox names the file; what is left of that is one name in the directory that was chosen here. */
function nameOf(path: string): string {
  const name = posix.basename(posix.normalize(path));
  return name === '' || name === '/' || name === '..' || name === '.' ? 'root' : name;
}

async function remoteType(
  sandbox: Sandbox,
  path: string,
  user: string | undefined,
): Promise<string | undefined> {
  try {
    return (await sandbox.files.stat(path, { user, follow: true })).type;
  } catch (error) {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  }
}
