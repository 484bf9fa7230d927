import { CayError } from '@cay/sdk/protocol';
import { encodeHeader } from '../../lib/tar/header.ts';
import { padding, tarEnd } from '../../lib/tar/pack.ts';
import { fileError } from './errno.ts';
import { contentOf, type FileNode } from './file-node.ts';
import { byBytes, partsOf, type FileTree } from './file-tree.ts';
import type { User } from './users.ts';

/** The tree below `path` as a POSIX pax archive, with names relative to it. */
export function packTree(
  tree: FileTree,
  user: User,
  path: string,
  only?: string[],
): AsyncIterable<Uint8Array> {
  const { node: top } = tree.get(user, path);
  if (top.type !== 'directory') throw fileError('ENOTDIR', path);
  const starts = only?.map((name) => {
    if (name.startsWith('/') || partsOf(name).includes('..')) {
      throw new CayError(
        'invalid_argument',
        `Cannot pack ${JSON.stringify(name)}: it is not below ${JSON.stringify(path)}`,
      );
    }
    return { name: partsOf(name).join('/'), node: tree.get(user, `${path}/${name}`, { follow: false }).node };
  });

  async function* pack(node: FileNode, name: string): AsyncIterable<Uint8Array> {
    if (node.type === 'char') return;
    if (name !== '') yield header(node, name);
    if (node.type === 'file') {
      tree.demand(user, node, 4, name);
      const bytes = contentOf(node);
      for (let at = 0; at < bytes.length; at += 65_536) yield bytes.slice(at, at + 65_536);
      yield padding(bytes.length);
    } else if (node.type === 'directory') {
      tree.demand(user, node, 5, name);
      for (const key of [...node.entries.keys()].sort(byBytes)) {
        const child = node.entries.get(key);
        if (child) yield* pack(child, name === '' ? key : `${name}/${key}`);
      }
    }
  }

  return (async function* () {
    for (const { node, name } of starts ?? [{ node: top, name: '' }]) yield* pack(node, name);
    yield tarEnd();
  })();
}

function header(node: FileNode, name: string): Uint8Array {
  const { mode, uid, gid, modifiedAtMs } = node;
  const type = node.type === 'symlink' || node.type === 'directory' ? node.type : 'file';
  return encodeHeader({
    name,
    type,
    sizeBytes: node.type === 'file' ? node.size : 0,
    target: node.type === 'symlink' ? node.target : '',
    mode,
    uid,
    gid,
    modifiedAtMs,
  });
}
