/** Puts uploaded files where a step wants them, as `COPY` of a Dockerfile does. */
import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { BuildStep } from './build.ts';
import { decompressed } from './decompressed.ts';
import { requireRun, type RunIn } from './run-in.ts';

/** How large an unpacked archive may be, where the disk limit of the sandbox is not lower. */
const MAX_UNPACKED = 20 * 1024 ** 3;

/**
 * The content of a directory goes into the target. A file becomes the target, or goes into it if that is a
 * directory.
 */
const PLACE = `set -eu
source=$1 target=$2 owner=$3 mode=$4
[ -e "$source" ] || [ -L "$source" ] || { echo "$5 is not among the files that were brought" >&2; exit 1; }
if [ -n "$mode" ] && ! [ -L "$source" ]; then chmod -R -- "$mode" "$source"; fi
chown -Rh -- "$owner" "$source"
if [ -d "$source" ] && ! [ -L "$source" ]; then
  [ -d "$target" ] || { mkdir -p -- "$target"; chown -- "$owner" "$target"; }
  find "$source" -mindepth 1 -maxdepth 1 -exec cp -a --remove-destination -t "$target" -- {} +
else
  case $target in */) mkdir -p -- "$target" ;; esac
  if [ -d "$target" ]; then target=$target/$(basename -- "$source"); fi
  mkdir -p -- "$(dirname -- "$target")"
  cp -a --remove-destination -T -- "$source" "$target"
fi`;

export async function placeFiles(
  run: RunIn,
  archive: AsyncIterable<Uint8Array>,
  step: Extract<BuildStep, { type: 'copy' }>,
): Promise<void> {
  const { surroundings } = run;
  const asRoot: RunIn = { ...run, surroundings: { ...surroundings, user: 'root', workdir: '/' } };
  const files = run.guest.files('root');
  const unpacked = `/var/tmp/build-files-${step.files.slice(0, 32)}`;
  await files.untar(unpacked, limited(decompressed(archive)), { signal: run.signal });
  const owner = step.owner ?? surroundings.user;
  const target = posix.resolve(surroundings.workdir, step.target) + (step.target.endsWith('/') ? '/' : '');
  const source = posix.join(unpacked, fixedPart(step.source));
  const argv = [
    '/bin/bash',
    '-c',
    PLACE,
    'place',
    source,
    target,
    owner.includes(':') ? owner : `${owner}:`,
    step.mode ?? '',
    step.source,
  ];
  await requireRun(asRoot, argv, `COPY ${step.source} ${step.target}`);
  await files.remove(unpacked, { recursive: true, signal: run.signal });
}

/**
 * The directories of a pattern above the first wildcard. The client has matched the pattern when it packed
 * the files.
 */
export function fixedPart(source: string): string {
  const parts = posix.normalize(source).split('/');
  const wild = parts.findIndex((part) => /[*?[\]{}]/.test(part));
  const fixed = (wild === -1 ? parts : parts.slice(0, wild)).join('/');
  if (posix.isAbsolute(fixed) || fixed.split('/').includes('..'))
    throw new CayError('invalid_argument', `"${source.slice(0, 200)}" leads out of the uploaded files`);
  return fixed;
}

async function* limited(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const chunk of data) {
    bytes += chunk.length;
    if (bytes > MAX_UNPACKED)
      throw new CayError('invalid_argument', `The files are larger than ${MAX_UNPACKED} bytes`);
    yield chunk;
  }
}
