import { hash } from 'node:crypto';
import {
  chmod,
  chown,
  cp,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readFile,
  readdir,
  readlink,
  rename,
  rm,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import type { FileChange } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BtrfsSnapshotter, openBtrfs } from './btrfs.ts';
import { command } from './command.ts';
import { compareTrees } from './compare/compare-trees.ts';
import { sendChanges } from './send-changes.ts';

const root = process.getuid?.() === 0;
if (!root) console.warn('Skipping the tests of comparing by the send stream: they need root');

/** Few names, so that they meet one another: as files, directories, sources and targets. */
const NAMES = ['a', 'b', 'c', 'd/a', 'd/b', 'd/e/a', 'd/e/b', 'd', 'd/e', 'f', 'f/a', 'f/d', 'o257-7-0'];
const name = fc.constantFrom(...NAMES);
const operation = fc.oneof(
  fc.record({ verb: fc.constant('write' as const), at: name, text: fc.constantFrom('x', 'y', 'xx', '') }),
  fc.record({
    verb: fc.constant('patch' as const),
    at: name,
    offset: fc.constantFrom(0, 5000, 200_000),
    text: fc.constantFrom('p', 'q'),
  }),
  fc.record({ verb: fc.constant('truncate' as const), at: name, size: fc.constantFrom(0, 1, 4096, 300_000) }),
  fc.record({ verb: fc.constant('mkdir' as const), at: name }),
  fc.record({ verb: fc.constant('rename' as const), at: name, to: name }),
  fc.record({ verb: fc.constant('swap' as const), at: name, to: name }),
  fc.record({ verb: fc.constant('copy' as const), at: name, to: name }),
  fc.record({ verb: fc.constant('remove' as const), at: name }),
  fc.record({ verb: fc.constant('link' as const), at: name, to: name }),
  fc.record({ verb: fc.constant('symlink' as const), at: name, to: name }),
  fc.record({ verb: fc.constant('chmod' as const), at: name, mode: fc.constantFrom(0o600, 0o755) }),
  fc.record({ verb: fc.constant('chown' as const), at: name, uid: fc.constantFrom(0, 7) }),
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** Does what it can: a operation that the tree has no place for changes nothing. */
async function act(dir: string, operations: Operation[]): Promise<void> {
  for (const step of operations) await one(step).catch(() => {});

  async function one(step: Operation): Promise<void> {
    const at = join(dir, step.at);
    switch (step.verb) {
      case 'write':
        return writeFile(at, step.text);
      case 'patch': {
        const file = await open(at, 'r+');
        await file.write(step.text, step.offset);
        return file.close();
      }
      case 'truncate':
        return truncate(at, step.size);
      case 'mkdir':
        return void (await mkdir(at, { recursive: true }));
      case 'rename':
        return rename(at, join(dir, step.to));
      case 'swap': {
        const spare = join(dir, 'spare');
        await rename(at, spare);
        await rename(join(dir, step.to), at).catch(() => {});
        return rename(spare, join(dir, step.to)).catch(() => rename(spare, at));
      }
      case 'copy':
        return cp(at, join(dir, step.to), { recursive: true });
      case 'remove':
        return rm(at, { recursive: true });
      case 'link':
        return link(at, join(dir, step.to));
      case 'symlink':
        return symlink(step.to, at);
      case 'chmod':
        return chmod(at, step.mode);
      case 'chown':
        return chown(at, step.uid, step.uid);
    }
  }
}

type Survey = Map<string, { type: string; content: string; mode: number; owner: string }>;

/** Every path with what is there. */
async function survey(root: string, path = '/', all: Survey = new Map()): Promise<Survey> {
  const at = join(root, path);
  const stat = await lstat(at);
  const type = stat.isDirectory() ? 'directory' : stat.isSymbolicLink() ? 'symlink' : 'file';
  const content =
    type === 'directory' ? '' : type === 'symlink' ? await readlink(at) : hash('sha1', await readFile(at));
  all.set(path, { type, content, mode: stat.mode & 0o7777, owner: `${stat.uid}:${stat.gid}` });
  if (type === 'directory')
    for (const file of (await readdir(at)).sort()) await survey(root, join(path, file), all);
  return all;
}

/** What the first tree becomes by those changes, with only so much of the second as they say that differs. */
function replay(before: Survey, changes: FileChange[], target: Survey): Survey {
  const after: Survey = new Map();
  const removed = new Set(changes.filter(({ change }) => change === 'removed').map(({ path }) => path));
  const renamed = new Map(
    changes.flatMap((change) => (change.from === undefined ? [] : [[change.from, change.path] as const])),
  );
  const where = (path: string): string =>
    renamed.get(path) ?? (path === '/' ? '/' : join(where(dirname(path)), basename(path)));
  for (const [path, facts] of before) {
    if (removed.has(path)) continue;
    expect(after.has(where(path))).toBe(false);
    after.set(where(path), facts);
  }
  for (const { change, path, type, content, mode, owner } of changes) {
    if (change === 'removed') continue;
    const [old, now] = [after.get(path), target.get(path)!];
    expect(now.type).toBe(type);
    expect(old === undefined).toBe(change === 'added');
    if (old) {
      expect([content, mode, owner]).toEqual([
        old.content !== now.content,
        old.mode !== now.mode,
        old.owner !== now.owner,
      ]);
      expect(change === 'renamed' || content || mode || owner).toBe(true);
      expect(old.type).toBe(type);
    }
    after.set(path, now);
  }
  return after;
}

describe.skipIf(!root)('sendChanges', () => {
  let dir: string;
  let trees: BtrfsSnapshotter;
  let round = 0;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'cay-send-'));
    trees = await openBtrfs({ dir, poolBytes: 512 * 1024 ** 2, tendEveryMs: 0 });
  });
  afterAll(async () => {
    await trees?.destroy();
    await rm(dir, { recursive: true, force: true });
  });

  async function both(a: string, b: string): Promise<void> {
    const [from, to] = [await trees.committedPath(a), await trees.committedPath(b)];
    const quick = await sendChanges({ from, to });
    expect(quick).toEqual(await compareTrees({ from, to, identity: 'inode' }));
    const [before, after] = [await survey(from), await survey(to)];
    expect(replay(before, quick!, after)).toEqual(after);
    expect(replay(before, await compareTrees({ from, to, identity: 'likeness' }), after)).toEqual(after);
  }

  it('finds what a walk over both trees finds, whatever was done', async () => {
    const operations = fc.array(operation, { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(operations, operations, operations, async (first, second, third) => {
        const names = ['base', 'next', 'side', 'work', 'other'].map((kind) => `${kind}-${round}`);
        const [base, next, side, work, other] = names as [string, string, string, string, string];
        round += 1;
        const path = await trees.prepare(work);
        await mkdir(join(path, 'd', 'e'), { recursive: true });
        await act(path, first);
        await trees.commit(base, work);
        await act(path, second);
        await trees.commit(next, work);
        await act(await trees.prepare(other, { parent: base }), third);
        await trees.commit(side, other);
        await both(base, next);
        await both(next, base);
        await both(next, side);
        for (const tree of [other, side, next, base, work]) await trees.remove(tree);
      }),
      { numRuns: 10 },
    );
  }, 300_000);

  it('sees every name of a file that was written through one of them', async () => {
    const path = await trees.prepare('links');
    await mkdir(join(path, 'far', 'away'), { recursive: true });
    await writeFile(join(path, 'one'), 'x');
    await link(join(path, 'one'), join(path, 'far', 'away', 'two'));
    await trees.commit('links-1', 'links');
    await writeFile(join(path, 'one'), 'y');
    await rename(join(path, 'far', 'away'), join(path, 'near'));
    await trees.commit('links-2', 'links');
    const [from, to] = [await trees.committedPath('links-1'), await trees.committedPath('links-2')];
    const found = await sendChanges({ from, to });
    expect(found?.map(({ change, path: at, content }) => [change, at, content])).toEqual([
      ['renamed', '/near', false],
      ['modified', '/near/two', true],
      ['modified', '/one', true],
    ]);
  });

  it('leaves to the walk what the stream does not show', async () => {
    expect(await sendChanges({ from: join(dir, 'nothing'), to: join(dir, 'nobody') })).toBeUndefined();
    const path = await trees.prepare('many');
    await trees.commit('many-1', 'many');
    for (let index = 0; index < 40; index++) {
      await writeFile(join(path, `${index}`), 'x');
      await link(join(path, `${index}`), join(path, `${index}-link`));
    }
    await trees.commit('many-2', 'many');
    for (let index = 0; index < 40; index++) await writeFile(join(path, `${index}`), 'y');
    await trees.commit('many-3', 'many');
    const [from, to] = [await trees.committedPath('many-2'), await trees.committedPath('many-3')];
    expect(await sendChanges({ from, to })).toBeUndefined();
    expect(await Array.fromAsync(trees.changes('many-2', 'many-3'))).toHaveLength(80);
  });

  it('does not take a subvolume inside of a tree for a part of it', async () => {
    const path = await trees.prepare('outer');
    await trees.commit('outer-1', 'outer');
    await command(['btrfs', 'subvolume', 'create', join(path, 'inner')]);
    await writeFile(join(path, 'inner', 'file'), 'x');
    await trees.commit('outer-2', 'outer');
    expect(await Array.fromAsync(trees.changes('outer-1', 'outer-2'))).toEqual([]);
    const [from, to] = [await trees.committedPath('outer-1'), await trees.committedPath('outer-2')];
    expect(await sendChanges({ from, to })).toEqual([]);
    expect(await compareTrees({ from, to, identity: 'inode' })).toEqual([]);
  });
});
