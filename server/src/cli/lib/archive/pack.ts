/** A directory of this machine as a tar stream, with names relative to it. */
import type { Stats } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileChunks } from '../file-chunks.ts';
import { BLOCK, encodeHeader, paddingOf } from '../../../lib/tar/header.ts';

export interface PackOptions {
  onProgress?(bytes: number): void;
  /** For what tar has no place for: sockets, devices. */
  onLeftOut?(name: string): void;
  /** What is not packed: `file` it alone, `tree` also all below it. */
  ignores?(name: string): 'file' | 'tree' | undefined;
}

export async function* pack(
  dir: string,
  options: PackOptions = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;

  async function* entry(path: string, name: string): AsyncGenerator<Uint8Array, void, undefined> {
    const ignored = name === '' ? undefined : options.ignores?.(name);
    if (ignored === 'tree') return;
    const stat = await lstat(path);
    if (ignored === 'file' && !stat.isDirectory()) return;
    // Ids of this machine mean nothing in a sandbox.
    const common = { name, mode: stat.mode & 0o7777, uid: 0, gid: 0, modifiedAtMs: stat.mtimeMs };
    if (stat.isSymbolicLink())
      yield encodeHeader({ ...common, type: 'symlink', sizeBytes: 0, target: await readlink(path) });
    else if (stat.isDirectory()) {
      if (name !== '' && !ignored)
        yield encodeHeader({ ...common, type: 'directory', sizeBytes: 0, target: '' });
      for (const child of (await readdir(path)).sort())
        yield* entry(join(path, child), name === '' ? child : `${name}/${child}`);
    } else if (stat.isFile()) {
      yield encodeHeader({ ...common, type: 'file', sizeBytes: stat.size, target: '' });
      yield* content(path, stat);
    } else options.onLeftOut?.(name);
  }

  async function* content(path: string, { size }: Stats): AsyncGenerator<Uint8Array, void, undefined> {
    let left = size;
    // A file that grows meanwhile is taken as long as it was.
    if (size > 0) {
      for await (const chunk of fileChunks(path, size)) {
        left -= chunk.length;
        options.onProgress?.((bytes += chunk.length));
        yield chunk;
      }
    }
    if (left > 0) throw new Error(`"${path}" became shorter while it was read`);
    yield new Uint8Array(paddingOf(size));
  }

  yield* entry(dir, '');
  yield new Uint8Array(2 * BLOCK);
}
