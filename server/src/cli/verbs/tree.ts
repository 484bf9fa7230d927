/** Draws the snapshots of a sandbox and of its forks, and which snapshot each sandbox goes on from. */
import type { SnapshotTree } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, stateText } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const treeVerb: Verb = (program) => {
  const command = program
    .command('tree')
    .description('draw the snapshots of a sandbox and of its forks')
    .argument('<sandbox>', 'its id, name or the beginning of its id');
  withCommonOptions(command).action(async (ref: string, options: CommonOptions) => {
    const sandbox = await openClient(options).sandbox(ref);
    const tree = await sandbox.tree();
    if (options.json) return printJson(tree);
    for (const line of drawTree(tree, { self: sandbox.id, now: Date.now() })) print(line);
  });
};

type Node = SnapshotTree['nodes'][number];
type Located = SnapshotTree['start'][number];

/** Exported for its tests. */
export function drawTree(tree: SnapshotTree, { self, now }: { self: string; now: number }): string[] {
  const known = new Set<string>(tree.nodes.map(({ snapshot }) => snapshot.id));
  const children = new Map<string | null, Node[]>();
  for (const node of tree.nodes) {
    const { parent } = node.snapshot;
    const under = parent !== null && known.has(parent) ? parent : null;
    children.set(under, [...(children.get(under) ?? []), node]);
  }
  const lines: string[] = [`${colour.dim('○ start')}${sandboxesAt(tree.start, self)}`];
  // A chain stays on one level, each snapshot below its parent; a branch is indented.
  const draw = (nodes: Node[], indent: string) => {
    for (const [index, node] of nodes.entries()) {
      const last = index === nodes.length - 1;
      lines.push(
        `${indent}${nodes.length === 1 ? '' : last ? '└─' : '├─'}${label(node, now)}${sandboxesAt(node.sandboxes, self)}`,
      );
      draw(
        children.get(node.snapshot.id) ?? [],
        nodes.length === 1 ? indent : `${indent}${last ? '  ' : '│ '}`,
      );
    }
  };
  draw(children.get(null) ?? [], '');
  return lines;
}

const CAUSES: Record<Node['snapshot']['cause'], string> = {
  request: 'snapshot',
  turn: 'turn',
  rollback: 'before a rollback',
  fork: 'fork',
  archive: 'archived',
  move: 'before a move',
  import: 'imported',
};

function label({ snapshot }: Node, now: number): string {
  const { id, turn, name, memory, cause, createdAtMs } = snapshot;
  const title =
    [turn !== null && `turn ${turn}`, name !== null && `"${printable(name)}"`].filter(Boolean).join(' ') ||
    CAUSES[cause];
  return `${colour.yellow('●')} ${colour.bold(title)}${memory ? ' + memory' : ''} ${colour.dim(`${id} ${formatAge(now - createdAtMs)}`)}`;
}

function sandboxesAt(sandboxes: Located[], self: string): string {
  // The sandbox that was asked for comes first, then by name, with numbers in their order.
  const order = (one: Located, other: Located) =>
    Number(other.id === self) - Number(one.id === self) ||
    (one.name ?? one.id).localeCompare(other.name ?? other.id, 'en', { numeric: true });
  return sandboxes
    .toSorted(order)
    .map(
      ({ id, name, state }) =>
        ` ${colour.cyan('◀')} ${id === self ? colour.bold(name ?? id) : (name ?? id)} ${stateText(state)}`,
    )
    .join('');
}
