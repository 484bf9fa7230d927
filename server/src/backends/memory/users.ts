import { CayError } from '@cay/sdk/protocol';
import { contentOf } from './file-node.ts';
import type { FileTree } from './file-tree.ts';

export interface User {
  uid: number;
  /** Has root's reach, until a symlink that is not root's is followed. */
  reach?: boolean;
  gid: number;
  name: string;
  home: string;
}

export const ROOT: User = { uid: 0, gid: 0, name: 'root', home: '/root' };

/** Finds `name`, `uid`, `name:group` or `uid:gid` in the sandbox's own `/etc/passwd` and `/etc/group`. */
export function lookUpUser(tree: FileTree, text: string): User {
  const [who = '', group] = text.split(':');
  const row = table(tree, '/etc/passwd').find(([name, , uid]) => name === who || uid === who);
  if (!row && !/^\d+$/.test(who)) throw unknown(text);
  const user = row
    ? { uid: Number(row[2]), gid: Number(row[3]), name: row[0]!, home: row[5] ?? '/' }
    : { uid: Number(who), gid: 0, name: who, home: '/' };
  return group === undefined ? user : { ...user, gid: lookUpGroup(tree, group, text) };
}

function lookUpGroup(tree: FileTree, group: string, text: string): number {
  const row = table(tree, '/etc/group').find(([name, , gid]) => name === group || gid === group);
  if (row) return Number(row[2]);
  if (/^\d+$/.test(group)) return Number(group);
  throw unknown(text);
}

function table(tree: FileTree, path: string): string[][] {
  const { node } = tree.find(ROOT, path);
  if (node?.type !== 'file') return [];
  return Buffer.from(contentOf(node))
    .toString()
    .split('\n')
    .map((line) => line.split(':'));
}

const unknown = (text: string) =>
  new CayError(
    'not_found',
    `Cannot find user ${JSON.stringify(text.slice(0, 256))}: it is not in /etc/passwd`,
    {
      details: { what: 'user' },
    },
  );
