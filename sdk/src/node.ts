/** @module What needs the files of the machine that the program runs on: whole directories in and out. */
import { mkdir, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { create, extract } from 'tar';
import { CayError } from './protocol/error.ts';
import { errnoOf, errnoText } from './system-error.ts';
import type { Files } from './files.ts';

export interface DirectoryOptions {
  signal?: AbortSignal;
  /** The user inside; the sandbox's own if absent. */
  user?: string;
  /** Whether an entry goes along. The path is relative to the directory, as `src/main.py`. */
  filter?(path: string): boolean;
}

/** Copies what is in a local directory into a directory of the sandbox, which is made if need be. */
export async function uploadDir(
  files: Files,
  local: string,
  remote: string,
  { filter, ...options }: DirectoryOptions = {},
): Promise<{ entries: number; bytes: number }> {
  const found = await stat(local).catch((cause: unknown) => {
    const errno = errnoOf(cause);
    const why = errno === undefined ? 'it cannot be read' : errnoText(errno);
    const code = errno === 'EACCES' ? 'permission_denied' : 'not_found';
    throw new CayError(code, `Cannot upload "${local}": ${why}`, { cause });
  });
  if (!found.isDirectory())
    throw new CayError('invalid_argument', `Cannot upload "${local}": it is not a directory`, {
      hint: 'use files.write for a single file',
    });
  const archive = create({ cwd: local, portable: true, filter: (path) => wanted(path, filter) }, ['.']);
  return files.upload(remote, Readable.from(archive as AsyncIterable<Uint8Array>), options);
}

/**
 * Copies a directory of the sandbox into a local one, which is made if need be. What the sandbox sends is not
 * trusted: links that lead out, absolute names and devices are left out.
 */
export async function downloadDir(
  files: Files,
  remote: string,
  local: string,
  { filter, ...options }: DirectoryOptions = {},
): Promise<void> {
  await mkdir(local, { recursive: true });
  await pipeline(
    Readable.from(buffers(files.download(remote, options))),
    extract({ cwd: local, strict: false, preserveOwner: false, filter: (path) => wanted(path, filter) }),
  );
}

/** The unpacker takes Buffers alone. */
async function* buffers(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  for await (const { buffer, byteOffset, byteLength } of source)
    yield Buffer.from(buffer, byteOffset, byteLength);
}

function wanted(path: string, filter: DirectoryOptions['filter']): boolean {
  const name = path.replace(/^\.\/?/, '');
  return name === '' || filter === undefined || filter(name);
}
