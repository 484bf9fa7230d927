import type { FileChange } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { patchOf, type PatchOptions } from './patch.ts';
import { quoteName } from './quote-name.ts';
import { statOf } from './stat.ts';
import { tarNames } from './tar-names.ts';

interface Leaf {
  type: 'file' | 'symlink';
  content: Buffer;
  run: boolean;
}
type Leaves = Map<string, Leaf>;

const leaf = (content: string | Buffer, run = false): Leaf => ({
  type: 'file',
  content: Buffer.from(content),
  run,
});
const link = (target: string): Leaf => ({ type: 'symlink', content: Buffer.from(target), run: false });

/** What a comparison would tell; `renames` from new path to old, of directories too. */
function changesOf(before: Leaves, after: Leaves, renames: Map<string, string> = new Map()): FileChange[] {
  const changes: FileChange[] = [];
  const gone = new Set(before.keys());
  const facts = ({ content, run }: Leaf) => ({
    size: content.length,
    mode: run ? 0o755 : 0o644,
    uid: 0,
    gid: 0,
  });
  const none = { content: false, mode: false, owner: false };
  for (const [path, from] of renames) {
    if (!after.has(path)) changes.push({ path, from, change: 'renamed', type: 'directory', ...none });
  }
  const was = (path: string) => {
    if (renames.has(path)) return renames.get(path)!;
    for (const [to, from] of renames) if (path.startsWith(`${to}/`)) return from + path.slice(to.length);
    return path;
  };
  for (const [path, now] of after) {
    const from = was(path);
    const old = before.get(from);
    if (!old || !gone.has(from) || old.type !== now.type) {
      changes.push({ path, change: 'added', type: now.type, after: facts(now), ...none });
      continue;
    }
    gone.delete(from);
    const differs = { content: !old.content.equals(now.content), mode: old.run !== now.run, owner: false };
    const renamed = renames.has(path);
    if (!renamed && !differs.content && !differs.mode) continue;
    const change = renamed ? ({ change: 'renamed', from } as const) : ({ change: 'modified' } as const);
    changes.push({ path, ...change, type: now.type, before: facts(old), after: facts(now), ...differs });
  }
  for (const path of gone) {
    const old = before.get(path)!;
    changes.push({ path, change: 'removed', type: old.type, before: facts(old), ...none });
  }
  const order = (change: FileChange) => `${change.path}\0${change.change === 'removed' ? 0 : 1}`;
  return changes.sort((a, b) => (order(a) < order(b) ? -1 : 1));
}

function sides(before: Leaves, after: Leaves, renames?: Map<string, string>): PatchOptions {
  return {
    changes: each(changesOf(before, after, renames)),
    before: (path) => each([before.get(path)!.content]),
    after: (path) => each([after.get(path)!.content]),
    files: (path) => each([...after.keys()].filter((name) => name.startsWith(`${path}/`))),
  };
}

async function* each<T>(values: T[]): AsyncGenerator<T> {
  yield* values;
}

async function text(options: PatchOptions): Promise<string> {
  return Buffer.concat(await Array.fromAsync(patchOf(options))).toString();
}

describe('patches', () => {
  let dir: string;
  let next = 0;
  beforeAll(() => {
    dir = mkdtempSync(join(tmpdir(), 'cay-patches-'));
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  function put(leaves: Leaves): string {
    const root = join(dir, `tree-${next++}`);
    mkdirSync(root);
    for (const [path, { type, content, run }] of leaves) {
      mkdirSync(join(root, dirname(path)), { recursive: true });
      if (type === 'symlink') symlinkSync(content, join(root, path));
      else {
        writeFileSync(join(root, path), content);
        chmodSync(join(root, path), run ? 0o755 : 0o644);
      }
    }
    return root;
  }

  function get(root: string): string[] {
    const lines = (readdirSync(root, { recursive: true }) as string[]).flatMap((path) => {
      const stat = lstatSync(join(root, path));
      if (stat.isDirectory() || path.startsWith('.git')) return [];
      const content = stat.isSymbolicLink()
        ? readlinkSync(join(root, path))
        : readFileSync(join(root, path)).toString('latin1');
      return [`${path} ${stat.isSymbolicLink() ? 'link' : stat.mode.toString(8)} ${content}`];
    });
    return lines.sort();
  }

  async function applies(before: Leaves, after: Leaves, renames?: Map<string, string>): Promise<void> {
    const root = put(before);
    const patch = Buffer.concat(await Array.fromAsync(patchOf(sides(before, after, renames))));
    const git = (args: string[], input = patch) =>
      execFileSync('git', args, {
        cwd: root,
        input,
        env: { ...process.env, GIT_CEILING_DIRECTORIES: dir },
        stdio: 'pipe',
      });
    git(['init', '-q'], Buffer.alloc(0));
    if (patch.length > 0) git(['apply', '--whitespace=nowarn', '-']);
    expect(get(root)).toEqual(get(put(after)));
    if (patch.length > 0) git(['apply', '--whitespace=nowarn', '-R', '-']);
    expect(get(root)).toEqual(get(put(before)));
  }

  const name = fc.constantFrom(
    'a',
    'b c',
    'ünï',
    'q"uote',
    'back\\slash',
    'tab\tnew\nline',
    '-dash',
    'file.txt',
    '日本',
    ' lead',
    'trail ',
  );
  const path = fc
    .array(name, { minLength: 1, maxLength: 2 })
    .map(
      (parts) =>
        `/${parts.map((part, index) => (index === 0 && parts.length > 1 ? `d ${part}` : part)).join('/')}`,
    );
  const lines = fc.array(fc.constantFrom('one', 'two', 'three', '', 'ä', '\r', '-- x', '+y'), {
    maxLength: 30,
  });
  const content = fc.oneof(
    {
      weight: 4,
      arbitrary: fc
        .tuple(lines, fc.constantFrom('', '\n'))
        .map(([lines, end]) => Buffer.from(lines.join('\n') + end)),
    },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)) },
  );
  const anyLeaf: fc.Arbitrary<Leaf> = fc.oneof(
    { weight: 5, arbitrary: fc.tuple(content, fc.boolean()).map(([content, run]) => leaf(content, run)) },
    { weight: 1, arbitrary: fc.constantFrom('target', 'other one', '../x').map(link) },
  );
  const tree = fc
    .dictionary(path, anyLeaf, { maxKeys: 6, noNullPrototype: true })
    .map((leaves) => new Map(Object.entries(leaves)));

  it('turn any tree into any other, and back', async () => {
    await fc.assert(
      fc.asyncProperty(tree, tree, fc.array(fc.nat(5), { maxLength: 2 }), async (before, later, picks) => {
        // Some of what was there goes to a new name, or stays as it was.
        const renames = new Map<string, string>();
        const after = new Map(later);
        for (const pick of picks) {
          const from = [...before.keys()][pick];
          if (from === undefined || after.has(from) || [...renames.values()].includes(from)) continue;
          const to = `/moved ${renames.size}/ñ`;
          after.set(to, before.get(from)!);
          renames.set(to, from);
        }
        for (const [path, old] of before)
          if (!after.has(path) && path.length % 2 === 0 && ![...renames.values()].includes(path))
            after.set(path, old);
        await applies(before, after, renames);
      }),
      { numRuns: 60 },
    );
  }, 90_000);

  it('find a file without content in a directory whose name ends with a space', async () => {
    await applies(new Map(), new Map([['/d trail /a', leaf('')]]));
  });

  it('move a directory with all its files, those that changed too', async () => {
    const body = (last: string) =>
      Array.from({ length: 30 }, (_, index) => `line ${index}\n`).join('') + last;
    const before = new Map([
      ['/old dir/same', leaf('s\n', true)],
      ['/old dir/sub/changed', leaf(body('x'))],
      ['/old dir/gone', leaf('g')],
    ]);
    const after = new Map([
      ['/new/same', leaf('s\n', true)],
      ['/new/sub/changed', leaf(body('y'))],
      ['/new/added', leaf('a')],
    ]);
    const renames = new Map([['/new', '/old dir']]);
    await applies(before, after, renames);
    const { files, insertions, deletions } = await statOf(sides(before, after, renames));
    expect({ insertions, deletions }).toEqual({ insertions: 2, deletions: 2 });
    expect(files.map(({ path, change }) => `${change} ${path}`)).toEqual([
      'renamed /new',
      'added /new/added',
      'modified /new/sub/changed',
      'removed /old dir/gone',
    ]);
  });

  it('are relative to a directory, where files come from outside and go there', async () => {
    const before: Leaves = new Map([
      ['/app/src/a', leaf('one\n')],
      ['/app/left', leaf('left\n')],
      ['/came', leaf('came\n')],
      ['/other', leaf('x')],
    ]);
    const after: Leaves = new Map([
      ['/app/src/a', leaf('two\n')],
      ['/app/came', leaf('came\n')],
      ['/left', leaf('left\n')],
      ['/other', leaf('y')],
    ]);
    const renames = new Map([
      ['/app/came', '/came'],
      ['/left', '/app/left'],
    ]);
    const options = { ...sides(before, after, renames), relativeTo: '/app' };
    const patch = Buffer.concat(await Array.fromAsync(patchOf(options)));
    const root = join(put(before), 'app');
    const env = { ...process.env, GIT_CEILING_DIRECTORIES: dir };
    execFileSync('git', ['apply', '-'], { cwd: root, input: patch, env, stdio: 'pipe' });
    expect(get(root)).toEqual(get(join(put(after), 'app')));
    expect(patch.toString()).not.toContain('other');
  });

  it('are what git would have written', async () => {
    const patch = await text(
      sides(
        new Map([['/a b', leaf('1\n2\n3\n4\n5\n6\n7\n8\n9\n')]]),
        new Map([['/a b', leaf('1\n2\n3\n4\nfive\n6\n7\n8\n9', true)]]),
      ),
    );
    expect(patch).toMatch(
      /^diff --git a\/a b b\/a b\nold mode 100644\nnew mode 100755\nindex [0-9a-f]{40}\.\.[0-9a-f]{40}\n--- a\/a b\t\n\+\+\+ b\/a b\t\n/,
    );
    expect(patch.split('\n').slice(6).join('\n')).toBe(
      '@@ -2,8 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n-9\n+9\n\\ No newline at end of file\n',
    );
    expect([quoteName('plain x'), quoteName('a"b'), quoteName('ä\t')]).toEqual([
      'plain x',
      '"a\\"b"',
      '"\\303\\244\\t"',
    ]);
  });

  it('replace long texts that have nothing in common within their bound', async () => {
    const many = (word: string) =>
      leaf(Array.from({ length: 20_000 }, (_, index) => `${word} ${index}\n`).join(''));
    await applies(new Map([['/x', many('old')]]), new Map([['/x', many('new')]]));
  });

  it('only say that a file differs beyond the bounds, and end beyond their own', async () => {
    const options = () =>
      sides(new Map([['/x', leaf('a'.repeat(2000))]]), new Map([['/x', leaf('b'.repeat(2000))]]));
    expect(await text({ ...options(), maxTextBytes: 1000, maxBinaryBytes: 1000 })).toContain(
      'Binary files a/x and b/x differ\n',
    );
    expect(await text({ ...options(), maxTextBytes: 1000 })).toContain('GIT binary patch\nliteral 2000\n');
    await expect(text({ ...options(), maxBytes: 100 })).rejects.toMatchObject({ code: 'resource_exhausted' });
    const { files } = await statOf({ ...options(), maxTextBytes: 1000 });
    expect(files).toEqual([{ path: '/x', change: 'modified', insertions: 0, deletions: 0, binary: true }]);
  });

  it('know the names in a tar', async () => {
    const root = put(
      new Map([
        ['/d/a', leaf('x'.repeat(2000))],
        [`/d/${'long'.repeat(50)}`, leaf('')],
        ['/d/ü', link('x')],
      ]),
    );
    const tar = execFileSync('tar', ['-C', root, '--format=pax', '--sort=name', '-c', 'd']);
    expect(await Array.fromAsync(tarNames(each([tar])))).toEqual(['/d/a', `/d/${'long'.repeat(50)}`, '/d/ü']);
  });
});
