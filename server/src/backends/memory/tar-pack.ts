import { CayError } from '@cay/sdk/protocol';
import { fileError } from './errno.ts';
import { contentOf, type FileNode } from './file-node.ts';
import { byBytes, partsOf, type FileTree } from './file-tree.ts';
import type { User } from './users.ts';

const TYPES = { file: '0', symlink: '2', char: '3', directory: '5' } as const;
const BLOCK = 512;

/** The tree below `path` as a POSIX pax archive, with names relative to it. */
export function packTree(tree: FileTree, user: User, path: string, only?: string[]): AsyncIterable<Uint8Array> {
  const { node: top } = tree.get(user, path);
  if (top.type !== 'directory') throw fileError('ENOTDIR', path);
  const starts = only?.map((name) => {
    if (name.startsWith('/') || partsOf(name).includes('..')) {
      throw new CayError('invalid_argument', `Cannot pack ${JSON.stringify(name)}: it is not below ${JSON.stringify(path)}`);
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
      yield new Uint8Array((BLOCK - (bytes.length % BLOCK)) % BLOCK);
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
    yield new Uint8Array(2 * BLOCK);
  })();
}

function header(node: FileNode, path: string): Uint8Array {
  const name = node.type === 'directory' ? `${path}/` : path;
  const link = node.type === 'symlink' ? node.target : '';
  const size = node.type === 'file' ? node.size : 0;
  const records = { ...(!fits(name) && { path: name }), ...(!fits(link) && { linkpath: link }) };
  const main = block({
    name,
    link,
    size,
    type: TYPES[node.type],
    mode: node.mode,
    uid: node.uid,
    gid: node.gid,
    mtime: Math.floor(node.modifiedAtMs / 1000),
  });
  if (Object.keys(records).length === 0) return main;
  const body = Buffer.concat(Object.entries(records).map(([key, value]) => record(key, value)));
  const pax = block({ name: 'pax', link: '', size: body.length, type: 'x', mode: 0o644, uid: 0, gid: 0, mtime: 0 });
  return Buffer.concat([pax, body, Buffer.alloc((BLOCK - (body.length % BLOCK)) % BLOCK), main]);
}

/** Beyond ASCII the old header has no encoding, and beyond 100 bytes no room. */
const fits = (text: string) => Buffer.byteLength(text) <= 100 && /^[\x20-\x7e]*$/.test(text);

/** `LENGTH KEY=VALUE\n`, where the length counts its own digits. */
function record(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + String(rest).length;
  if (String(length).length + rest > length) length++;
  return Buffer.from(`${length} ${key}=${value}\n`);
}

interface Fields {
  name: string;
  link: string;
  size: number;
  type: string;
  mode: number;
  uid: number;
  gid: number;
  mtime: number;
}

function block(fields: Fields): Buffer {
  const bytes = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, digits: number) => bytes.write(value.toString(8).padStart(digits, '0'), at);
  bytes.write(fields.name, 0, 100);
  octal(fields.mode, 100, 7);
  octal(fields.uid & 0o7777777, 108, 7);
  octal(fields.gid & 0o7777777, 116, 7);
  octal(fields.size, 124, 11);
  octal(fields.mtime, 136, 11);
  bytes.fill(' ', 148, 156);
  bytes.write(fields.type, 156);
  bytes.write(fields.link, 157, 100);
  bytes.write('ustar\u000000', 257);
  octal(
    bytes.reduce((sum, byte) => sum + byte, 0),
    148,
    6,
  );
  bytes[154] = 0;
  return bytes;
}
