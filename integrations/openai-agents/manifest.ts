/** What a manifest puts into a workspace. */
import {
  Permissions,
  SandboxGitCloneError,
  SandboxLocalFileReadError,
  SandboxUnsupportedFeatureError,
  type Dir,
  type Entry,
  type GitRepo,
  type Manifest,
} from '@openai/agents-core/sandbox';
import type { Sandbox } from '@cay/sdk';
import { uploadDir } from '@cay/sdk/node';
import { readFile, realpath } from 'node:fs/promises';
import { posix, relative, resolve, isAbsolute } from 'node:path';

const CLONES_FOR_MS = 10 * 60_000;

/** Refused before anything is made. */
export function refuseUnsupported(manifest: Manifest): void {
  if (manifest.users.length > 0 || manifest.groups.length > 0) throw unsupported('users and groups');
  for (const { entry, logicalPath } of manifest.iterEntries()) refuseEntry(logicalPath, entry);
}

function refuseEntry(path: string, entry: Entry): void {
  if (entry.type === 'mount' || entry.type.endsWith('_mount'))
    throw unsupported(`the ${entry.type} "${path}"; use volumes of Cay`);
  if (entry.group) throw unsupported(`the group of "${path}"`);
}

interface Place {
  sandbox: Sandbox;
  manifest: Manifest;
  user: string | undefined;
}

/** Entries are made parents first, and replace what is there. */
export async function materialize(place: Place, path: string, entry: Entry): Promise<void> {
  const { files } = place.sandbox;
  const { user } = place;
  refuseEntry(path, entry);
  if (entry.type === 'dir') {
    await files.mkdir(path, { user });
    await setMode(place, path, entry);
    for (const [name, child] of Object.entries((entry as Dir).children ?? {}))
      await materialize(place, posix.join(path, name), child);
    return;
  }
  if (entry.type === 'file')
    await files.write(path, (entry as { content: string | Uint8Array }).content, { user });
  else if (entry.type === 'local_file')
    await files.write(path, await readFile(await localSource(place.manifest, entry as { src: string })), {
      user,
    });
  else if (entry.type === 'local_dir')
    await uploadDir(files, await localSource(place.manifest, entry as { src: string }), path, { user });
  else if (entry.type === 'git_repo') await clone(place, path, entry as GitRepo);
  await setMode(place, path, entry);
}

async function setMode({ sandbox, user }: Place, path: string, { permissions }: Entry): Promise<void> {
  if (permissions !== undefined)
    await sandbox.files.chmod(path, new Permissions(permissions).toMode() & 0o7777, { user });
}

/** Files of this machine are taken from the working directory and from what the manifest grants. */
async function localSource({ extraPathGrants }: Manifest, { src }: { src: string }): Promise<string> {
  const failed = (why: string) =>
    new SandboxLocalFileReadError(`Cannot take "${src}" into the workspace: ${why}`, {
      provider: 'cay',
      src,
    });
  const real = await realpath(src).catch((error: Error) => {
    throw failed(error.message);
  });
  const roots = [process.cwd(), ...extraPathGrants.map(({ path, hostPath }) => hostPath ?? path)];
  for (const root of roots) {
    const below = relative(await realpath(root).catch(() => resolve(root)), real);
    if (!below.startsWith('..') && !isAbsolute(below)) return real;
  }
  throw failed('it is neither below the working directory nor below a path of extraPathGrants');
}

/** The sandbox's own network policy decides what can be cloned. */
async function clone({ sandbox, user }: Place, path: string, entry: GitRepo): Promise<void> {
  const { host = 'github.com', repo, ref, subpath } = entry;
  const url = /^[a-z+]+:\/\/|^git@/.test(repo) ? repo : `https://${host}/${repo}`;
  const script = [
    'set -e',
    'made=$(mktemp -d)',
    'trap \'rm -rf "$made"\' EXIT',
    'git init -q "$made" && cd "$made"',
    'git fetch -q --depth 1 -- "$1" "${2:-HEAD}"',
    'git checkout -q FETCH_HEAD',
    'mkdir -p "$4"',
    '[ -n "$3" ] || { git remote add origin "$1"; cp -a . "$4"; exit 0; }',
    'cp -a "./$3/." "$4"',
  ].join('\n');
  const { exitCode, stderr } = await sandbox.exec(
    ['sh', '-c', script, 'sh', url, ref ?? '', subpath ?? '', path],
    {
      timeoutMs: CLONES_FOR_MS,
      env: { GIT_TERMINAL_PROMPT: '0' },
      ...(user !== undefined && { user }),
    },
  );
  if (exitCode !== 0)
    throw new SandboxGitCloneError(`Cannot clone "${url}" into "${path}": ${stderr.trim()}`, {
      provider: 'cay',
      url,
    });
}

function unsupported(what: string): SandboxUnsupportedFeatureError {
  return new SandboxUnsupportedFeatureError(`CaySandboxClient does not support ${what}.`, {
    provider: 'cay',
  });
}
