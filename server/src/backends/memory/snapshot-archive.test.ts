import { createHash } from 'node:crypto';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { baseTree } from './base-tree.ts';
import { plant } from './file-tree.ts';
import { readSnapshotArchive, writeSnapshotArchive } from './snapshot-archive.ts';
import { treeChanges } from './tree-changes.ts';
import { ROOT } from './users.ts';

const MARK = 'cay memory snapshot 1\n';
const facts = { id: newId('snap'), sandbox: newId('sbx'), spec: SandboxSpecSchema.parse({}), memory: false };
const tree = baseTree(['true'], { '/home/user/note': 'content', '/opt/deep/empty': '' });

async function written(): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(writeSnapshotArchive(facts, tree)));
}

async function* once(bytes: Uint8Array) {
  yield bytes;
}

const refused = (bytes: Uint8Array) =>
  expect(readSnapshotArchive(once(bytes), {})).rejects.toMatchObject({ code: 'invalid_argument' });

interface Table {
  nodes: { kind: object; mode: number }[];
  names: [number, string, number][];
}

/** The archive with another table, and a checksum that is right. */
async function forged(change: (table: Table) => void): Promise<Buffer> {
  const archive = await written();
  const length = archive.readUInt32BE(MARK.length);
  const table = JSON.parse(archive.toString('utf8', MARK.length + 4, MARK.length + 4 + length)) as Table;
  change(table);
  const text = Buffer.from(JSON.stringify(table));
  const size = Buffer.alloc(4);
  size.writeUInt32BE(text.length);
  const body = Buffer.concat([
    Buffer.from(MARK),
    size,
    text,
    archive.subarray(MARK.length + 4 + length, -32),
  ]);
  return Buffer.concat([body, createHash('sha256').update(body).digest()]);
}

describe('the archive of a snapshot', () => {
  it('gives back the same tree, a file with two names included', async () => {
    const { node } = tree.get(ROOT, '/home/user/note');
    node.links++;
    tree.put(ROOT, tree.find(ROOT, '/opt/twin'), node);
    node.xattrs.set('color', Buffer.from([0, 255]));
    const read = await readSnapshotArchive(once(await written()), {});
    expect(read.facts).toEqual({ sandbox: facts.sandbox, spec: facts.spec, memory: false });
    expect(treeChanges(tree, read.tree)).toEqual([]);
    expect(treeChanges(read.tree, tree)).toEqual([]);
    const back = read.tree.get(ROOT, '/home/user/note').node;
    expect(read.tree.get(ROOT, '/opt/twin').node).toBe(back);
    expect(back.links).toBe(2);
    expect(Buffer.from(back.xattrs.get('color')!)).toEqual(Buffer.from([0, 255]));
    expect(back.modifiedAtMs).toBe(node.modifiedAtMs);
    plant(read.tree, '/home/user/note', 'other');
    expect(treeChanges(tree, read.tree)).toMatchObject([
      { path: '/home/user/note', change: 'modified', content: true },
    ]);
  });

  it('is refused whole when it is cut off, or has any wrong byte', async () => {
    const archive = await written();
    await fc.assert(
      fc.asyncProperty(fc.nat(archive.length - 1), fc.integer({ min: 1, max: 255 }), async (at, flip) => {
        await refused(archive.subarray(0, at));
        const damaged = Buffer.from(archive);
        damaged[at]! ^= flip;
        await refused(damaged);
      }),
      { numRuns: 100 },
    );
    await refused(Buffer.concat([archive, Buffer.from([0])]));
  });

  it.each<[string, (table: Table) => void]>([
    ['a name that leads upwards', ({ names }) => (names[0]![1] = '..')],
    ['a name with a slash', ({ names }) => (names[0]![1] = '../../etc')],
    ['a name with a NUL', ({ names }) => (names[0]![1] = 'a\u0000b')],
    ['an empty name', ({ names }) => (names[0]![1] = '')],
    ['a name of 256 bytes', ({ names }) => (names[0]![1] = 'ü'.repeat(128))],
    ['a name that is given twice', ({ names }) => (names[1]![1] = names[0]![1])],
    ['a directory with two names', ({ names }) => names.push([0, 'again', names[0]![2]])],
    ['a directory inside itself', ({ names }) => names.push([names[0]![2], 'loop', names[0]![2]])],
    ['the root inside of something', ({ names }) => (names[0]![2] = 0)],
    ['a node that is missing', ({ names }) => (names[0]![2] = 99_999)],
    ['a node without a name', ({ names }) => names.pop()],
    ['a root that is no directory', ({ nodes }) => (nodes[0]!.kind = { type: 'symlink', target: '/' })],
    ['a mode that is none', ({ nodes }) => (nodes[1]!.mode = 0o100_644)],
    ['an unknown device', ({ nodes }) => (nodes[1]!.kind = { type: 'char', device: 'mem' })],
  ])('is refused with %s', async (_title, change) => {
    await refused(await forged(change));
  });
});
