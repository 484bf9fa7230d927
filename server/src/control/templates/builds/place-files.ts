/** Puts uploaded files where a step wants them, as `COPY` of a Dockerfile does. */
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { CayError } from '@cay/sdk/protocol';
import type { BuildStep } from './build.ts';
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
  await files.untar(unpacked, limited(await decompressed(archive)), { signal: run.signal });
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

/** Archives may be compressed. */
async function decompressed(archive: AsyncIterable<Uint8Array>): Promise<AsyncIterable<Uint8Array>> {
  const iterator = archive[Symbol.asyncIterator]();
  const first = await iterator.next();
  const whole = (async function* () {
    if (!first.done) yield first.value;
    yield* { [Symbol.asyncIterator]: () => iterator };
  })();
  if (first.done || first.value[0] !== 0x1f || first.value[1] !== 0x8b) return whole;
  const source = Readable.from(whole, { objectMode: false });
  const gunzip = createGunzip();
  source.on('error', (error) => gunzip.destroy(error));
  return source.pipe(gunzip);
}

async function* limited(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  try {
    for await (const chunk of data) {
      bytes += chunk.length;
      if (bytes > MAX_UNPACKED)
        throw new CayError('invalid_argument', `The files are larger than ${MAX_UNPACKED} bytes`);
      yield chunk;
    }
  } catch (error) {
    if (!(error as NodeJS.ErrnoException).code?.startsWith('Z_')) throw error;
    throw new CayError('invalid_argument', 'The uploaded files cannot be decompressed', {
      cause: error,
    });
  }
}
