import { CayError } from '@cay/sdk/protocol';
import { byteReader } from '../../lib/byte-reader.ts';
import { readTar, type TarEntry } from '../../lib/tar/read.ts';
import { newDirectory, newFile, newSymlink, type Directory, type FileNode } from './file-node.ts';
import { partsOf, type FileTree, type Place } from './file-tree.ts';
import type { User } from './users.ts';

const MAX_EXTENSION = 1024 * 1024;

const refuse = (why: string) =>
  new CayError('invalid_argument', `Cannot unpack the archive: ${why}`, { details: { errno: 'EINVAL' } });

/** Unpacks ustar, pax and GNU archives. Nothing that an archive says leads outside `path`. */
export async function unpackTree(
  tree: FileTree,
  user: User,
  path: string,
  data: AsyncIterable<Uint8Array>,
): Promise<{ entries: number; bytes: number }> {
  tree.makeDirectory(user, path);
  const { node: top, path: topPath } = tree.get(user, path);
  if (top.type !== 'directory') throw refuse(`${JSON.stringify(path)} is not a directory`);
  const reader = byteReader(data);
  const done = { entries: 0, bytes: 0 };

  /** Walks below the top without following a single symlink; makes directories that are missing. */
  function place(name: string): Place {
    const parts = partsOf(name);
    if (name.startsWith('/') || parts.includes('..'))
      throw refuse(`entry ${JSON.stringify(name)} would leave the directory`);
    let parent: Directory = top as Directory;
    let at = topPath === '/' ? '' : topPath;
    for (const part of parts.slice(0, -1)) {
      tree.demand(user, parent, 1, at);
      const next: FileNode | undefined = parent.entries.get(part);
      if (next && next.type !== 'directory')
        throw refuse(`entry ${JSON.stringify(name)} leads through a ${next.type}`);
      const made: Directory = next ?? newDirectory(user);
      if (!next) tree.put(user, { parent, name: part, node: undefined, path: `${at}/${part}` }, made);
      parent = made;
      at = `${at}/${part}`;
    }
    const last = parts.at(-1) ?? '';
    return { parent, name: last, node: parent.entries.get(last), path: `${at}/${last}` };
  }

  async function unpack({ type, name, target: link, sizeBytes, content, ...entry }: TarEntry): Promise<void> {
    const mode = entry.mode & (user.uid === 0 ? 0o7777 : 0o777);
    if (partsOf(name).length === 0 && type === 'directory') return;
    const to = place(name);
    if (to.name === '') throw refuse(`entry ${JSON.stringify(name)} has no name`);
    if (type !== 'directory' && to.node?.type === 'directory')
      throw refuse(`entry ${JSON.stringify(name)} would replace a directory`);
    if (type === 'directory') {
      if (to.node?.type === 'directory') to.node.mode = mode;
      else tree.put(user, to, newDirectory(user, mode));
    } else if (type === 'symlink') {
      if (link === '') throw refuse(`symlink ${JSON.stringify(name)} has no target`);
      tree.put(user, to, newSymlink(user, link));
    } else if (type === 'hardlink') {
      const target = place(link).node;
      if (target?.type !== 'file') throw refuse(`hard link ${JSON.stringify(name)} has no file to link to`);
      target.links++;
      tree.put(user, to, target);
    } else if (type === 'file') {
      const file = newFile(user, mode);
      try {
        for await (const part of content) tree.append(file, part, to.path);
        // Others may have changed the tree while the content was on its way.
        tree.put(user, place(name), file);
      } catch (error) {
        tree.reserve(-file.size, to.path);
        throw error;
      }
      done.bytes += sizeBytes;
    } else {
      throw refuse(`entry ${JSON.stringify(name)} is of a type that is not allowed`);
    }
  }

  try {
    for await (const entry of readTar(reader, { maxExtendedBytes: MAX_EXTENSION })) {
      if (entry.name.includes('\u0000')) throw refuse('a name contains a NUL');
      await unpack(entry);
      done.entries++;
    }
    return done;
  } catch (error) {
    throw error instanceof CayError ? error : refuse((error as Error).message);
  } finally {
    await reader.close();
  }
}
