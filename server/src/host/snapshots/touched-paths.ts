/**
 * Replays the commands that turn one tree into another, without executing them, and collects the paths of
 * both trees that they concern.
 *
 * The commands name files by their current path, which may exist in neither tree. So a tree of the mentioned
 * files is kept and changed as the commands say.
 */
import { CayError } from '@cay/sdk/protocol';
import type { ByteRange } from './compare/tree-entry.ts';
import type { SendCommand } from './send-stream.ts';

export interface TouchedFile {
  /** Its path in the first tree, if it was there. */
  from?: string;
  to: string;
  /** Bytes that may differ. Absent: too many places to list. */
  ranges?: readonly ByteRange[];
  /** More than its names was changed. */
  dirty: boolean;
}

export interface TouchedPaths {
  /** All mentioned paths of the first tree. */
  from: Set<string>;
  /** The paths in the second tree of everything that was mentioned. */
  files: TouchedFile[];
}

interface Node {
  from: string | undefined;
  /** By name; null where the first tree may have had an entry that is gone. */
  children: Map<string, Node | null>;
  ranges: ByteRange[] | undefined;
  dirty: boolean;
}

/** Beyond these bounds a full walk of both trees is cheaper. */
const MAX_NODES = 1_000_000;
/** Bound on the length of their paths, each of which includes that of its directory. */
const MAX_PATH_BYTES = 64 * 1024 * 1024;
const MAX_RANGES = 4096;
const MAX_DEPTH = 4096;

export async function followCommands(commands: AsyncIterable<SendCommand>): Promise<TouchedPaths> {
  const from = new Set<string>();
  let nodes = 0;
  let pathBytes = 0;
  const root = create('');

  function create(at: string | undefined): Node {
    if (++nodes > MAX_NODES) throw new CayError('resource_exhausted', `More than ${MAX_NODES} paths differ`);
    if (at !== undefined) mention(at);
    return { from: at, children: new Map(), ranges: [], dirty: false };
  }

  function mention(path: string): void {
    if (from.has(path)) return;
    pathBytes += path.length;
    if (pathBytes > MAX_PATH_BYTES)
      throw new CayError('resource_exhausted', `Paths of more than ${MAX_PATH_BYTES} bytes differ`);
    from.add(path);
  }

  function childOf(parent: Node, name: string): Node {
    const known = parent.children.get(name);
    if (known) return known;
    if (known === null || parent.from === undefined) throw missingAt(name);
    const child = create(`${parent.from}/${name}`);
    parent.children.set(name, child);
    return child;
  }

  function placeOf(path: string): { parent: Node; name: string } {
    const names = path.split('/');
    if (names.length > MAX_DEPTH || names.some((part) => part === '' || part === '.' || part === '..'))
      throw missingAt(path);
    const name = names.pop()!;
    return { parent: names.reduce(childOf, root), name };
  }

  function nodeAt(path: string): Node {
    if (path === '') return root;
    const { parent, name } = placeOf(path);
    return childOf(parent, name);
  }

  function put(path: string, node: Node): void {
    const { parent, name } = placeOf(path);
    // The overwritten entry belonged to the first tree.
    if (parent.from !== undefined && !parent.children.has(name)) mention(`${parent.from}/${name}`);
    parent.children.set(name, node);
  }

  function takeAway(path: string): Node {
    const node = nodeAt(path);
    const { parent, name } = placeOf(path);
    parent.children.set(name, null);
    return node;
  }

  for await (const command of commands) {
    if (command.kind === 'make') put(command.path, create(undefined));
    else if (command.kind === 'rename') put(command.to, takeAway(command.path));
    else if (command.kind === 'link') put(command.path, nodeAt(command.target));
    else if (command.kind === 'unlink') takeAway(command.path);
    else {
      const node = nodeAt(command.path);
      node.dirty = true;
      if (command.kind === 'data' && node.ranges) {
        addRange(node.ranges, command);
        if (node.ranges.length > MAX_RANGES) node.ranges = undefined;
      }
    }
  }
  return { from, files: gather(root) };
}

/** Ranges come in order, mostly side by side. */
function addRange(ranges: ByteRange[], { offset, length }: ByteRange): void {
  const last = ranges.at(-1);
  if (last && last.offset + last.length === offset) last.length += length;
  else ranges.push({ offset, length });
}

function gather(root: Node): TouchedFile[] {
  const files: TouchedFile[] = [];
  const queue: [string, Node][] = [['', root]];
  let pathBytes = 0;
  for (const [to, { from, children, ranges, dirty }] of queue) {
    pathBytes += to.length;
    if (pathBytes > MAX_PATH_BYTES)
      throw new CayError('resource_exhausted', `Paths of more than ${MAX_PATH_BYTES} bytes differ`);
    files.push({ to, dirty, ...(from !== undefined && { from }), ...(ranges && { ranges }) });
    for (const [name, child] of children) if (child) queue.push([`${to}/${name}`, child]);
  }
  return files;
}

function missingAt(path: string): CayError {
  return new CayError(
    'internal',
    `Cannot follow the stream of "btrfs send": nothing is at "${path.slice(0, 200)}"`,
  );
}
