/**
 * A small root filesystem of this machine's own programs, as a tar stream: a shell, coreutils,
 * the usual tools, and Python without its larger modules.
 */
import { execFile, spawn } from 'node:child_process';
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';

const run = promisify(execFile);

const PROGRAMS =
  '[ bash dash sh cat chmod chown cp cut date dd df du echo env expr false find getent grep gzip head hostname id kill ln ls md5sum mkdir mkfifo mknod mktemp mv nice nohup nproc od perl printf ps pwd ' +
  'readlink realpath rm rmdir sed seq setsid sha256sum sleep sort stat stty su sync tail tar tee test timeout touch tr true truncate tty uname uniq wc which whoami xargs yes mount umount prlimit mawk python3';
const LEFT_OUT = [
  '__pycache__',
  'dist-packages',
  'idlelib',
  'lib2to3',
  'ensurepip',
  'distutils',
  'pydoc_data',
  'tkinter',
  'unittest',
  'test',
  'config-*',
  'turtledemo',
];
const DIRECTORIES = [
  'etc',
  'dev',
  'home',
  'proc',
  'root',
  'run',
  'sys',
  'tmp',
  'usr/bin',
  'usr/lib',
  'usr/lib64',
  'usr/sbin',
  'var/tmp',
];

/** What an image has beside the usual programs. */
export interface HostImageExtras {
  /** By their path. What this machine lacks is left out. */
  readonly programs?: readonly string[];
  /** Directories, with all that is in them and the libraries that it needs. */
  readonly trees?: readonly string[];
}

/** `done` rejects if tar failed. */
export async function hostImageTar(
  extras: HostImageExtras = {},
): Promise<{ stdout: Readable; done: Promise<void> }> {
  const staging = await mkdtemp('/tmp/cay-image-');
  for (const directory of DIRECTORIES) await mkdir(`${staging}/${directory}`, { recursive: true });
  // It becomes the root, where everybody has to pass.
  await chmod(staging, 0o755);
  for (const directory of ['tmp', 'var/tmp']) await chmod(`${staging}/${directory}`, 0o1777);
  for (const link of ['bin', 'lib', 'lib64', 'sbin']) await symlink(`usr/${link}`, `${staging}/${link}`);
  await writeFile(
    `${staging}/etc/passwd`,
    'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n',
  );
  await writeFile(`${staging}/etc/group`, 'root:x:0:\nnogroup:x:65534:\n');
  const files = await filesOfHost(extras);
  const leftOut = extras.trees ? LEFT_OUT.slice(0, 1) : LEFT_OUT;
  const tar = spawn(
    'tar',
    [
      '-c',
      '--owner=0',
      '--group=0',
      ...leftOut.map((name) => `--exclude=${name}`),
      '-C',
      staging,
      '.',
      '-C',
      '/',
      // Some storage drivers give a directory that the archive does not name a mode that keeps users out.
      '--no-recursion',
      ...parentsOf(files),
      '--recursion',
      ...files,
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let said = '';
  tar.stderr.on('data', (part: Buffer) => (said += part.toString()));
  const done = new Promise<void>((resolve, reject) => {
    tar.on('error', reject);
    tar.on('close', (code) => {
      const failed = code === 0 ? undefined : new Error(`tar failed: ${said}`);
      void rm(staging, { recursive: true, force: true }).then(() => (failed ? reject(failed) : resolve()));
    });
  });
  return { stdout: tar.stdout, done };
}

/**
 * Programs and the libraries they are linked with, as paths below `/` that lead through no symlinked
 * directory.
 */
async function filesOfHost(extras: HostImageExtras): Promise<string[]> {
  const programs = PROGRAMS.split(' ')
    .flatMap((name) => ['/usr/bin', '/usr/sbin'].map((directory) => `${directory}/${name}`))
    .concat(extras.programs ?? [])
    .filter((path) => existsSync(path));
  const trees = (extras.trees ?? []).filter((path) => existsSync(path));
  const modules = ['/usr/lib/python3.11', '/usr/lib/python3.12', '/usr/lib/python3.13'].filter((path) =>
    existsSync(path),
  );
  const dynload = modules.flatMap((path) => list(`${path}/lib-dynload`));
  const perl =
    list('/usr/lib/x86_64-linux-gnu/perl-base').length > 0 ? ['/usr/lib/x86_64-linux-gnu/perl-base'] : [];
  const linked = [...programs, ...dynload, ...(await linkedIn(trees))];
  const { stdout } = await run('ldd', linked, { maxBuffer: 16 * 1024 * 1024 }).catch(
    (error: { stdout: string }) => error,
  );
  // Only what a line points to: the name of each file that was asked about stands there too, before a colon.
  const libraries = new Set(
    [...stdout.matchAll(/^\t(?:.*=> )?(\/\S+) \(0x/gm)].map((match) => match[1] as string),
  );
  const paths = new Set<string>();
  for (const path of [...programs, ...libraries, ...modules, ...perl, ...trees]) {
    const slash = path.lastIndexOf('/');
    paths.add(`${realpathSync(path.slice(0, slash))}${path.slice(slash)}`);
    // What a link leads to has to be there too.
    paths.add(realpathSync(path));
  }
  // A name may stand in the archive once.
  const isWithin = (path: string) => trees.some((tree) => path.startsWith(`${tree}/`));
  return [...paths]
    .filter((path) => !isWithin(path))
    .map((path) => path.slice(1))
    .sort();
}

/** Programs and libraries in trees. */
async function linkedIn(trees: readonly string[]): Promise<string[]> {
  if (trees.length === 0) return [];
  const kinds = ['(', '-name', '*.so*', '-o', '-perm', '-u+x', ')'];
  const { stdout } = await run('find', [...trees, '-xdev', '-type', 'f', ...kinds], {
    maxBuffer: 16 * 1024 * 1024,
  });
  return stdout.split('\n').filter((path) => path !== '');
}

function parentsOf(files: readonly string[]): string[] {
  const parents = new Set<string>();
  for (const file of files) {
    const steps = file.split('/').slice(0, -1);
    for (let length = 1; length <= steps.length; length++) parents.add(steps.slice(0, length).join('/'));
  }
  // An archive in which a name stands twice is refused.
  const isThere = (path: string) =>
    files.includes(path) || DIRECTORIES.some((made) => made === path || made.startsWith(`${path}/`));
  return [...parents].filter((path) => !isThere(path)).sort();
}

function list(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory).map((name) => `${directory}/${name}`) : [];
}
