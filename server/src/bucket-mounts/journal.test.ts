import { appendFileSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Journal, parseLine, type Line } from './journal.ts';
import { Nodes, type Node } from './nodes.ts';

let dir: string;
beforeEach(() => void (dir = mkdtempSync(join(tmpdir(), 'cay-journal-'))));
afterEach(() => rmSync(dir, { recursive: true, force: true }));
const file = () => join(dir, 'nodes');
const FACTS = { sizeBytes: 1, etag: 'e', modifiedAtMs: 2, atMs: 3 };

describe('a journal', () => {
  it('goes on behind a line that is half there', () => {
    const first = new Journal(file(), { all: () => [] });
    first.read();
    first.write(['+', 2, 1, 'a', 'file'], { must: true });
    first.close();
    appendFileSync(file(), '["+",3,1,"b"');
    const second = new Journal(file(), { all: () => [] });
    expect(second.read()).toEqual([['+', 2, 1, 'a', 'file']]);
    second.write(['u', 2], { must: true });
    second.close();
    expect(new Journal(file(), { all: () => [] }).read()).toEqual([
      ['+', 2, 1, 'a', 'file'],
      ['u', 2],
    ]);
  });

  it('takes nothing that is no line', () => {
    for (const text of [
      '',
      '{',
      '[]',
      '["+"]',
      '["+",2,1,"..","file"]',
      '["+",2,1,"a/b","file"]',
      '["s",2,2,null]',
    ])
      expect(parseLine(text), text).toBeUndefined();
    for (const text of [
      '["+",-2,1,"a","file"]',
      '["+",2.5,1,"a","file"]',
      '["m",2,1]',
      '["s",2,1,{"etag":1}]',
      '["x",2]',
    ])
      expect(parseLine(text), text).toBeUndefined();
    fc.assert(fc.property(fc.string(), (text) => void parseLine(text)));
    fc.assert(fc.property(fc.json(), (text) => void parseLine(text)));
    expect(parseLine(JSON.stringify(['s', 7, 1, FACTS, 1, ['e']]))).toEqual(['s', 7, 1, FACTS, 1, ['e']]);
  });

  it('is read after any damage, and no node is outside of the tree', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(lines(), fc.string()), { maxLength: 60 }), fc.nat(), (all, cut) => {
        writeFileSync(
          file(),
          all.map((one) => `${typeof one === 'string' ? one : JSON.stringify(one)}\n`).join(''),
        );
        truncateSync(file(), cut % (readFileSync(file()).length + 1));
        const nodes = new Nodes(file());
        for (const one of everyNode(nodes)) {
          expect(one.unlinked).toBe(false);
          expect(nodes.keyOf(one).split('/')).not.toContain('..');
        }
        nodes.enter(nodes.root, 'new', 'file');
        nodes.close();
        rmSync(file());
      }),
      { numRuns: 200 },
    );
  });
});

describe('nodes', () => {
  type Step = {
    do: 'enter' | 'directory' | 'unlink' | 'move' | 'forget' | 'note' | 'restart' | 'compact';
    one: number;
    other: number;
    name: string;
  };
  const steps = fc.array(
    fc.record({
      do: fc.constantFrom<Step['do']>(
        'enter',
        'directory',
        'enter',
        'unlink',
        'move',
        'forget',
        'note',
        'restart',
        'compact',
      ),
      one: fc.nat(20),
      other: fc.nat(20),
      name: fc.constantFrom('a', 'b', 'c', 'd'),
    }),
    { maxLength: 80 },
  );

  it('are the same to the next server, whatever happened', () => {
    fc.assert(
      fc.property(steps, (all) => {
        let nodes = new Nodes(file(), { compactAfter: 13 });
        for (const step of all) nodes = take(nodes, step);
        const before = shown(nodes);
        nodes.close();
        const after = new Nodes(file(), { compactAfter: 13 });
        expect(shown(after)).toEqual(before);
        after.close();
        rmSync(file(), { force: true });
      }),
      { numRuns: 300 },
    );
  });

  function take(nodes: Nodes, { do: what, one, other, name }: Step): Nodes {
    const every = [...everyNode(nodes)];
    const directories = [nodes.root, ...every.filter(({ kind }) => kind === 'directory')];
    const directory = directories[one % directories.length]!;
    const node = every[other % Math.max(1, every.length)];
    if (what === 'enter' || what === 'directory') {
      const made = nodes.enter(directory, name, what === 'enter' ? 'file' : 'directory');
      made.lookups = 1;
    } else if (what === 'restart') {
      nodes.close();
      return new Nodes(file(), { compactAfter: 13 });
    } else if (!node) return nodes;
    else if (what === 'unlink' && node.children.size === 0) nodes.unlink(node);
    else if (what === 'forget') nodes.forget(node.id, 1_000);
    else if (what === 'move') {
      for (let at: Node | undefined = directory; at; at = at.parent) if (at === node) return nodes;
      if ((directory.children.get(name)?.children.size ?? 0) === 0) nodes.move(node, directory, name);
    }
    return nodes;
  }

  function shown(nodes: Nodes): string[] {
    return [...everyNode(nodes)].map((node) => `${node.id} ${node.kind} ${nodes.keyOf(node)}`).sort();
  }

  it('never give a number a second time', () => {
    const first = new Nodes(file());
    const used = first.enter(first.root, 'a', 'file').id;
    first.forget(used, 1);
    first.close();
    const second = new Nodes(file());
    expect(second.enter(second.root, 'b', 'file').id).toBeGreaterThan(used);
    second.close();
  });

  it('are found again by the kernel after a restart, until it forgets them', () => {
    const first = new Nodes(file());
    const { id } = first.enter(first.root, 'a', 'file');
    first.find(id).lookups = 3;
    first.close();
    const second = new Nodes(file());
    // It is opened and closed, and the kernel still knows it.
    second.release(second.find(id));
    expect(second.has(id)).toBe(true);
    second.forget(id, 3);
    expect(second.has(id)).toBe(false);
    second.close();
  });

  it('with a content that the bucket lacks are not forgotten', () => {
    const first = new Nodes(file());
    const node = first.enter(first.root, 'a', 'file');
    first.hasContent = () => true;
    first.note(node, { dirty: true, base: undefined, isNew: true, tried: ['e'] });
    first.forget(node.id, 1);
    expect(first.has(node.id)).toBe(true);
    first.close();
    const second = new Nodes(file());
    expect(second.found.get(node.id)).toEqual({ dirty: true, base: undefined, isNew: true, tried: ['e'] });
    second.close();
  });

  it('are bounded', () => {
    const share = { entries: 0, isCrowded: false };
    const nodes = new Nodes(file(), { mostNodes: 3, share });
    nodes.enter(nodes.root, 'a', 'file');
    nodes.enter(nodes.root, 'b', 'file');
    expect(() => nodes.enter(nodes.root, 'c', 'file')).toThrow(expect.objectContaining({ errno: 23 }));
    expect(share.entries).toBe(3);
    nodes.close();
    expect(share.entries).toBe(0);
  });
});

function* everyNode(nodes: Nodes): Generator<Node> {
  const queue = [nodes.root];
  for (let at = queue.pop(); at; at = queue.pop())
    for (const child of at.children.values()) {
      queue.push(child);
      yield child;
    }
}

function lines(): fc.Arbitrary<Line> {
  const id = fc.integer({ min: 1, max: 8 });
  const name = fc.constantFrom('a', 'b', 'c');
  return fc.oneof(
    fc.tuple(fc.constant('+' as const), id, id, name, fc.constantFrom('file' as const, 'directory' as const)),
    fc.tuple(fc.constantFrom('-' as const, 'u' as const, 'n' as const), id),
    fc.tuple(fc.constant('m' as const), id, id, name),
    fc.tuple(
      fc.constant('s' as const),
      id,
      fc.constantFrom(0 as const, 1 as const),
      fc.constant(null),
      fc.constant(0 as const),
      fc.constant([]),
    ),
  );
}
