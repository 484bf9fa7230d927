/**
 * The files and directories of a mount that the kernel knows by a number. The numbers have to mean the same
 * to the next server, so that each change goes to a journal.
 */
import { constants } from 'node:os';
import { FuseError } from './fuse/fuse-error.ts';
import { Journal, type Line } from './journal.ts';

export type Kind = 'file' | 'directory';

/** An object as it was seen. */
export interface ObjectFacts {
  sizeBytes: number;
  etag: string;
  modifiedAtMs: number;
  /** When it was seen. */
  atMs: number;
}

export interface Node {
  readonly id: number;
  readonly kind: Kind;
  parent: Node | undefined;
  name: string;
  /** Those of a directory that are known, by name. */
  readonly children: Map<string, Node>;
  /** How often the kernel was given it. */
  lookups: number;
  opens: number;
  /** Its name leads to something else by now, or to nothing. */
  unlinked: boolean;
  /** Absent: it was not looked at yet, or is here alone. */
  facts: ObjectFacts | undefined;
  /** A directory that is here alone: the bucket has nothing below it any more. */
  kept: boolean;
  /** The ETag with which it was opened the last time. */
  openedEtag: string | undefined;
  /** The key that it had before its latest rename. */
  movedFrom: string | undefined;
}

/** What an earlier server says of a content that it has left. */
export interface LeftContent {
  dirty: boolean;
  base: ObjectFacts | undefined;
  isNew: boolean;
  /** ETags of contents whose upload may have succeeded, and nobody knows. */
  tried: readonly string[];
}

/** How many names are kept for all mounts of a project. */
export interface EntryShare {
  entries: number;
  readonly isCrowded: boolean;
}

export interface NodesOptions {
  mostNodes?: number;
  compactAfter?: number;
  /** Only to see what there is. */
  look?: boolean;
  /** Counts the names of all mounts of a project. */
  share?: EntryShare | undefined;
}

export const ROOT = 1;
const MOST_NODES = 200_000;
/** Numbers are announced by so many, so that the next server gives none a second time. */
const NUMBERS_AHEAD = 1_000;

export class Nodes {
  readonly root: Node = newNode(ROOT, 'directory', undefined, '');
  readonly #byId = new Map<number, Node>([[ROOT, this.root]]);
  readonly #journal: Journal;
  readonly #most: number;
  #next = ROOT + 1;
  /** No number from here on is announced. */
  #announced = ROOT + 1;
  /** Contents that an earlier server has left, by the numbers of their files. */
  readonly found = new Map<number, LeftContent>();

  readonly #share: EntryShare;

  constructor(
    file: string,
    { mostNodes = MOST_NODES, compactAfter, look = false, share }: NodesOptions = {},
  ) {
    this.#most = mostNodes;
    this.#share = share ?? { entries: 0, isCrowded: false };
    this.#journal = new Journal(file, {
      all: () => this.#all(),
      ...(compactAfter !== undefined && { compactAfter }),
    });
    this.#recover(this.#journal.read({ look }));
    this.#share.entries += this.#byId.size;
  }

  get size(): number {
    return this.#byId.size;
  }

  find(id: number): Node {
    const node = this.#byId.get(id);
    if (!node) throw new FuseError(constants.errno.ESTALE);
    return node;
  }

  has = (id: number): boolean => this.#byId.has(id);

  /** The child of that name and kind, which is made if it is not known. */
  enter(parent: Node, name: string, kind: Kind): Node {
    const known = parent.children.get(name);
    if (known?.kind === kind) return known;
    if (this.#byId.size >= this.#most || this.#share.isCrowded) throw new FuseError(constants.errno.ENFILE);
    if (this.#next >= this.#announced) {
      this.#journal.write(['n', this.#next + NUMBERS_AHEAD], { must: true });
      this.#announced = this.#next + NUMBERS_AHEAD;
    }
    if (known) this.unlink(known);
    const node = newNode(this.#next++, kind, parent, name);
    parent.children.set(name, node);
    this.#byId.set(node.id, node);
    this.#share.entries++;
    this.#journal.write(['+', node.id, parent.id, name, kind], { must: false });
    return node;
  }

  /** It goes on without a name, for those who have it open. */
  unlink(node: Node): void {
    takeOut(node);
    node.unlinked = true;
    this.#journal.write(['u', node.id], { must: false });
  }

  /** Throws if the next server would not know of it, and then changes nothing. */
  move(node: Node, parent: Node, name: string): void {
    this.#journal.write(['m', node.id, parent.id, name], { must: true });
    node.movedFrom = this.keyOf(node);
    takeOut(node);
    const there = parent.children.get(name);
    if (there && there !== node) this.unlink(there);
    node.parent = parent;
    node.name = name;
    parent.children.set(name, node);
  }

  /** Notes a content. Throws for one that the bucket lacks, if the next server would not know of it. */
  note(node: Node, content: LeftContent): void {
    this.#journal.write(lineOf(node, content), { must: content.dirty });
  }

  forget(id: number, times: number): void {
    const node = this.#byId.get(id);
    if (!node || node === this.root) return;
    node.lookups = Math.max(0, node.lookups - times);
    this.release(node);
  }

  /** Drops it if nobody needs it. */
  release(node: Node): void {
    for (let at: Node | undefined = node; at && at !== this.root; at = at.parent) {
      if (at.lookups > 0 || at.opens > 0 || at.kept || at.children.size > 0) return;
      if (this.hasContent(at)) return;
      if (!this.#byId.delete(at.id)) return;
      this.#share.entries--;
      this.#journal.write(['-', at.id], { must: false });
      if (at.parent?.children.get(at.name) !== at) return;
      at.parent.children.delete(at.name);
    }
  }

  /** Its key below the prefix of the mount; with a slash at its end if it is a directory. */
  keyOf(node: Node): string {
    const names: string[] = [];
    for (let at: Node | undefined = node; at?.parent; at = at.parent) names.push(at.name);
    return names.reverse().join('/') + (node.kind === 'directory' && names.length > 0 ? '/' : '');
  }

  close(): void {
    this.#share.entries -= this.#byId.size;
    this.#byId.clear();
    this.#journal.close();
  }

  /** The contents that are here. A node that has one is not dropped. */
  contents: () => Iterable<readonly [Node, LeftContent]> = () => [];
  hasContent: (node: Node) => boolean = () => false;

  /** What an earlier server has written. What makes no sense in it is left out. */
  #recover(lines: readonly Line[]): void {
    const all = new Map<number, Node>([[ROOT, this.root]]);
    for (const line of lines) {
      const [what, id] = line;
      if (what === 'n') {
        this.#next = Math.max(this.#next, id);
        continue;
      }
      if (what === '+') {
        const parent = all.get(line[2]);
        this.#next = Math.max(this.#next, id + 1);
        if (parent?.kind !== 'directory' || all.has(id)) continue;
        const made = newNode(id, line[4], parent, line[3]);
        // The kernel knows it, how often is not known. It forgets it as a whole.
        made.lookups = 1;
        all.set(id, made);
        this.#byId.set(id, made);
        putInto(parent, made);
        continue;
      }
      const node = all.get(id);
      if (!node || node === this.root) continue;
      if (what === 's') {
        const [, , dirty, base, isNew, tried] = line;
        this.found.set(id, { dirty: dirty === 1, base: base ?? undefined, isNew: isNew === 1, tried });
      } else if (what === 'm') {
        const parent = all.get(line[2]);
        if (!parent || parent.kind !== 'directory' || isBelow(parent, node)) continue;
        node.movedFrom = this.keyOf(node);
        takeOut(node);
        node.parent = parent;
        node.name = line[3];
        putInto(parent, node);
      } else {
        takeOut(node);
        node.unlinked = true;
        if (what === 'u') continue;
        this.#byId.delete(id);
        this.found.delete(id);
      }
    }
    this.#announced = this.#next;
  }

  #all(): Line[] {
    const lines: Line[] = [['n', this.#announced]];
    const written = new Set<number>([ROOT]);
    const add = (node: Node) => {
      if (written.has(node.id)) return;
      if (node.parent) add(node.parent);
      written.add(node.id);
      lines.push(['+', node.id, node.parent?.id ?? ROOT, node.name, node.kind]);
      if (node.unlinked) lines.push(['u', node.id]);
    };
    // What has no name comes first: another may have its name by now.
    const nodes = [...this.#byId.values()];
    for (const node of nodes) if (node.unlinked) add(node);
    for (const node of nodes) add(node);
    for (const id of written) if (!this.#byId.has(id)) lines.push(['-', id]);
    for (const [node, content] of this.contents()) lines.push(lineOf(node, content));
    return lines;
  }
}

function lineOf(node: Node, { dirty, base, isNew, tried }: LeftContent): Line {
  return ['s', node.id, dirty ? 1 : 0, base ?? null, isNew ? 1 : 0, [...tried]];
}

function takeOut(node: Node): void {
  if (node.parent?.children.get(node.name) === node) node.parent.children.delete(node.name);
}

function putInto(parent: Node, node: Node): void {
  const there = parent.children.get(node.name);
  if (there && there !== node) there.unlinked = true;
  parent.children.set(node.name, node);
}

function isBelow(node: Node, above: Node): boolean {
  for (let at: Node | undefined = node; at; at = at.parent) if (at === above) return true;
  return false;
}

function newNode(id: number, kind: Kind, parent: Node | undefined, name: string): Node {
  return {
    id,
    kind,
    parent,
    name,
    children: new Map(),
    lookups: 0,
    opens: 0,
    unlinked: false,
    facts: undefined,
    kept: false,
    openedEtag: undefined,
    movedFrom: undefined,
  };
}
