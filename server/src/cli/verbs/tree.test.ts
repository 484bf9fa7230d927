import type { Snapshot, SnapshotId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { drawTree } from './tree.ts';

const id = (letter: string) => `snap_${letter.repeat(20)}` as SnapshotId;

function snapshot(letter: string, parent: string | null, more: Partial<Snapshot> = {}): Snapshot {
  return {
    id: id(letter),
    sandbox: 'sbx_a',
    project: 'prj_a',
    parent: parent === null ? null : id(parent),
    name: null,
    turn: null,
    cause: 'request',
    labels: {},
    memory: false,
    runtime: null,
    template: 'base',
    quiet: true,
    archived: false,
    bytes: null,
    createdAtMs: 0,
    ...more,
  };
}

const at = (name: string) => [{ id: 'sbx_a' as const, name, state: 'active' }];
const plain = (lines: string[]) =>
  // oxlint-disable-next-line no-control-regex -- the test is not about colours
  lines.map((line) => line.replaceAll(/\u001b\[[0-9;]*m/g, '').replaceAll(/ snap_(\w)\w+/g, ' $1'));

describe('the tree of snapshots', () => {
  it('draws a chain on one level and indents branches', () => {
    const tree = {
      start: [],
      nodes: [
        { snapshot: snapshot('a', null, { turn: 1 }), sandboxes: [] },
        { snapshot: snapshot('b', 'a', { turn: 2, name: 'works', memory: true }), sandboxes: [] },
        { snapshot: snapshot('c', 'b', { turn: 3 }), sandboxes: at('one') },
        { snapshot: snapshot('d', 'b', { cause: 'fork' as const }), sandboxes: at('two') },
      ],
    };
    expect(plain(drawTree(tree, { self: 'sbx_b', now: 5000 }))).toEqual([
      '○ start',
      '● turn 1 a 5s',
      '● turn 2 "works" + memory b 5s',
      '├─● turn 3 c 5s ◀ one active',
      '└─● fork d 5s ◀ two active',
    ]);
  });

  it('draws a snapshot whose parent is gone below the start', () => {
    const tree = {
      start: at('one'),
      nodes: [{ snapshot: snapshot('b', 'a', { turn: 2 }), sandboxes: [] }],
    };
    expect(plain(drawTree(tree, { self: 'sbx_b', now: 0 }))).toEqual([
      '○ start ◀ one active',
      '● turn 2 b 0s',
    ]);
  });
});
