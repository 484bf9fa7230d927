import type { FileInfo } from '@cay/sdk/protocol';
import type { WriteOptions } from '../../guest/guest.ts';
import { fileError } from './errno.ts';
import { newFile } from './file-node.ts';
import { infoOf, type FileTree } from './file-tree.ts';
import type { User } from './users.ts';

export interface WriteFile {
  tree: FileTree;
  user: User;
  /** Called between pieces. Rejects when the write is to end. */
  check(): Promise<void>;
}

/** Writes a file whole or not at all, except to its end. Directories above it are made. */
export async function writeFile(
  { tree, user, check }: WriteFile,
  path: string,
  data: AsyncIterable<Uint8Array> | Uint8Array,
  options: WriteOptions,
): Promise<FileInfo> {
  const target = () => {
    const place = tree.find(user, path);
    if (place.node?.type === 'directory') throw fileError('EISDIR', path);
    if (place.node && options.exclusive) throw fileError('EEXIST', path);
    tree.demand(user, place.parent, 2, path);
    return place;
  };
  const parent = path.slice(0, path.lastIndexOf('/'));
  if (parent) tree.makeDirectory(user, parent);
  const { node: old } = target();
  if (old?.type === 'char') {
    for await (const _ of pieces(data)) await check();
    return infoOf(old, path);
  }
  if (options.append && old?.type === 'file') {
    tree.demandMutable(path);
    tree.demand(user, old, 2, path);
    for await (const part of pieces(data)) {
      await check();
      tree.append(old, part, path);
      tree.emit('modified', path);
    }
    return infoOf(old, path);
  }
  const file = newFile(user, options.mode ?? old?.mode ?? 0o644);
  try {
    for await (const part of pieces(data)) {
      await check();
      tree.append(file, part, path);
    }
    await check();
    const place = target();
    options.onLook?.(place.node !== undefined);
    tree.put(user, place, file);
  } catch (error) {
    tree.reserve(-file.size, path);
    throw error;
  }
  return infoOf(file, path);
}

async function* pieces(data: AsyncIterable<Uint8Array> | Uint8Array): AsyncIterable<Uint8Array> {
  if (data instanceof Uint8Array) yield data;
  else yield* data;
}
