/**
 * A snapshot as one stream: a line that says what it is, the length of a table and the table as JSON, the
 * content of every file in the table's order, and the SHA-256 of all before it.
 *
 * It is the memory backend's own form: sandboxes of functions go on nowhere else.
 */
import { createHash, type Hash } from 'node:crypto';
import { CayError, SandboxIdSchema, SandboxSpecSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import { byteReader, TruncatedError } from '../../lib/byte-reader.ts';
import type { ImportOptions, SnapshotFacts } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import {
  contentOf,
  newDevice,
  newDirectory,
  newFile,
  newSymlink,
  type Directory,
  type FileNode,
} from './file-node.ts';
import { fileTree, type FileTree } from './file-tree.ts';

const MARK = Buffer.from('cay memory snapshot 1\n');
const LENGTH_BYTES = 4;
const SUM_BYTES = 32;
const MAX_TABLE = 256 * 1024 * 1024;
const MAX_DATA = 2 * 1024 * 1024 * 1024;

const NameSchema = z
  .string()
  .refine((name) => Buffer.byteLength(name) <= 255 && !['', '.', '..'].includes(name) && !/[/\0]/.test(name));
const KindSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('directory') }),
  z.object({ type: z.literal('file'), size: z.int().min(0).max(MAX_DATA) }),
  z.object({ type: z.literal('symlink'), target: z.string().min(1).max(4096) }),
  z.object({ type: z.literal('char'), device: z.enum(['null', 'zero']) }),
]);
const NodeSchema = z.object({
  kind: KindSchema,
  mode: z.int().min(0).max(0o7777),
  uid: z.int().min(0).max(0xffff_ffff),
  gid: z.int().min(0).max(0xffff_ffff),
  modifiedAtMs: z.number(),
  xattrs: z.record(z.string(), z.base64()),
});
const TableSchema = z.object({
  sandbox: SandboxIdSchema,
  spec: SandboxSpecSchema,
  usedBytes: z.int(),
  /** The first is the root. */
  nodes: z.array(NodeSchema).min(1),
  /** Names, each in a directory that has a name already. A file may have many. */
  names: z.array(z.tuple([z.int().min(0), NameSchema, z.int().min(1)])),
});
type Table = z.infer<typeof TableSchema>;

export async function* writeSnapshotArchive(
  { sandbox, spec }: SnapshotFacts,
  tree: FileTree,
): AsyncIterable<Uint8Array> {
  const nodes = new Map<FileNode, number>([[tree.root, 0]]);
  const names: Table['names'] = [];
  // A map that grows while it is gone through is gone through to its end.
  for (const [node, parent] of nodes) {
    if (node.type !== 'directory') continue;
    for (const [name, child] of node.entries) {
      if (!nodes.has(child)) nodes.set(child, nodes.size);
      names.push([parent, name, nodes.get(child)!]);
    }
  }
  const table: Table = {
    sandbox,
    spec,
    usedBytes: tree.usedBytes,
    nodes: [...nodes.keys()].map(rowOf),
    names,
  };
  const text = Buffer.from(JSON.stringify(table));
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(text.length);
  const sum = createHash('sha256');
  for (const part of [
    MARK,
    length,
    text,
    ...[...nodes.keys()].map((node) => (node.type === 'file' ? contentOf(node) : undefined)),
  ]) {
    if (!part) continue;
    sum.update(part);
    yield part.slice();
  }
  yield sum.digest();
}

export async function readSnapshotArchive(
  archive: AsyncIterable<Uint8Array>,
  { signal, admit }: ImportOptions,
): Promise<{ facts: Omit<SnapshotFacts, 'id'>; tree: FileTree; bytes: number }> {
  const reader = byteReader(archive);
  const sum: Hash = createHash('sha256');
  let taken = 0;
  const read = async (length: number): Promise<Buffer> => {
    requireWanted(signal);
    await admit?.(length);
    taken += length;
    const bytes = await reader.exactly(length).catch((cause: Error) => {
      throw cause instanceof TruncatedError ? refuse(cause.message) : cause;
    });
    if (bytes.length < length) throw refuse(new TruncatedError().message);
    sum.update(bytes);
    return bytes;
  };
  try {
    if (!(await read(MARK.length)).equals(MARK)) throw refuse('it is not a snapshot of the memory backend');
    const length = (await read(LENGTH_BYTES)).readUInt32BE();
    if (length > MAX_TABLE) throw refuse('its table is too long');
    const { sandbox, spec, usedBytes, nodes: rows, names } = tableOf((await read(length)).toString());
    const nodes: FileNode[] = [];
    for (const row of rows)
      nodes.push(nodeOf(row, row.kind.type === 'file' ? await read(row.kind.size) : undefined));
    const expected = sum.copy().digest();
    if (!(await read(SUM_BYTES)).equals(expected)) throw refuse('its checksum is wrong');
    if ((await reader.some(1)).length > 0) throw refuse('something follows its end');
    const tree = fileTree(joined(nodes, names));
    tree.usedBytes = usedBytes;
    return { facts: { sandbox, spec, memory: false }, tree, bytes: taken };
  } finally {
    await reader.close();
  }
}

const refuse = (why: string) => new CayError('invalid_argument', `Cannot take in the archive: ${why}`);

function rowOf(node: FileNode): Table['nodes'][number] {
  const { mode, uid, gid, modifiedAtMs, type } = node;
  const kind =
    type === 'file'
      ? { type, size: node.size }
      : type === 'symlink'
        ? { type, target: node.target }
        : type === 'char'
          ? { type, device: node.device }
          : { type };
  const xattrs = Object.fromEntries(
    [...node.xattrs].map(([name, value]) => [name, Buffer.from(value).toString('base64')]),
  );
  return { kind, mode, uid, gid, modifiedAtMs, xattrs };
}

function tableOf(text: string): Table {
  try {
    return TableSchema.parse(JSON.parse(text));
  } catch {
    throw refuse('its table is broken');
  }
}

function nodeOf(
  { kind, mode, modifiedAtMs, xattrs, ...owner }: Table['nodes'][number],
  content: Buffer | undefined,
): FileNode {
  const node =
    kind.type === 'file'
      ? { ...newFile(owner), data: content!, size: kind.size }
      : kind.type === 'symlink'
        ? newSymlink(owner, kind.target)
        : kind.type === 'char'
          ? newDevice(owner, kind.device)
          : newDirectory(owner);
  for (const [name, value] of Object.entries(xattrs)) node.xattrs.set(name, Buffer.from(value, 'base64'));
  return Object.assign(node, { mode, modifiedAtMs, links: 0 });
}

/**
 * Puts every node where its names say. Rejects what is no tree: a directory with two names, a name given
 * twice, a node without one.
 */
function joined(nodes: FileNode[], names: Table['names']): Directory {
  const [root] = nodes;
  if (root?.type !== 'directory') throw refuse('its root is no directory');
  root.links = 1;
  for (const [parentAt, name, childAt] of names) {
    const [parent, child] = [nodes[parentAt], nodes[childAt]];
    if (parent?.type !== 'directory' || parent.links === 0 || !child || parent.entries.has(name))
      throw refuse(`${JSON.stringify(name)} has no place`);
    if (child.links > 0 && child.type !== 'file') throw refuse(`${JSON.stringify(name)} has two places`);
    child.links++;
    parent.entries.set(name, child);
  }
  if (nodes.some(({ links }) => links === 0)) throw refuse('something in it has no name');
  return root;
}
