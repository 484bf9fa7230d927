/**
 * The files and directories of a mount that the kernel knows by a number. The numbers have to mean the same to the
 * next server, so that each change is appended to a journal. It need not survive a power loss: no mount does.
 */
import { closeSync, existsSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import { FuseError } from './fuse/fuse-error.ts';

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
}

/** A line of the journal. `s`: content that is here, whether the bucket lacks it, and what it began with. */
export type Line =
  | ['+', number, number, string, Kind]
  | ['-', number]
  | ['m', number, number, string]
  | ['u', number]
  | ['s', number, 0 | 1, ObjectFacts | null];

export const ROOT = 1;
const MOST_NODES = 200_000;
const COMPACT_AFTER = 400_000;

export class Nodes {
  readonly root: Node = newNode(ROOT, 'directory', undefined, '');
  readonly #byId = new Map<number, Node>([[ROOT, this.root]]);
  readonly #file: string;
  #fd: number;
  #next = ROOT + 1;
  #lines = 0;
  /** Contents that an earlier server has left, by the numbers of their files. */
  readonly found = new Map<number, { dirty: boolean; base: ObjectFacts | null }>();

  constructor(file: string) {
    this.#file = file;
    if (existsSync(file)) this.#read(readFileSync(file, 'utf8'));
    this.#fd = openSync(file, 'a', 0o600);
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
    if (known) this.unlink(known);
    if (this.#byId.size >= MOST_NODES) throw new FuseError(constants.errno.ENFILE);
    const node = newNode(this.#next++, kind, parent, name);
    parent.children.set(name, node);
    this.#byId.set(node.id, node);
    this.write(['+', node.id, parent.id, name, kind]);
    return node;
  }

  /** It goes on without a name, for those who have it open. */
  unlink(node: Node): void {
    if (node.parent?.children.get(node.name) === node) node.parent.children.delete(node.name);
    node.unlinked = true;
    this.write(['u', node.id]);
  }

  move(node: Node, parent: Node, name: string): void {
    if (node.parent?.children.get(node.name) === node) node.parent.children.delete(node.name);
    const there = parent.children.get(name);
    if (there && there !== node) this.unlink(there);
    node.parent = parent;
    node.name = name;
    parent.children.set(name, node);
    this.write(['m', node.id, parent.id, name]);
  }

  forget(id: number, times: number): void {
    const node = this.#byId.get(id);
    if (!node || node === this.root) return;
    node.lookups = Math.max(0, node.lookups - times);
    this.release(node);
  }

  /** Drops it if nobody needs it. */
  release(node: Node): void {
    if (node.lookups > 0 || node.opens > 0 || node.kept || node.children.size > 0) return;
    if (!this.#byId.delete(node.id)) return;
    this.write(['-', node.id]);
    const { parent } = node;
    if (parent?.children.get(node.name) !== node) return;
    parent.children.delete(node.name);
    if (parent !== this.root) this.release(parent);
  }

  /** Its key below the prefix of the mount; with a slash at its end if it is a directory. */
  keyOf(node: Node): string {
    const names: string[] = [];
    for (let at: Node | undefined = node; at?.parent; at = at.parent) names.unshift(at.name);
    return names.join('/') + (node.kind === 'directory' && names.length > 0 ? '/' : '');
  }

  write(line: Line): void {
    writeSync(this.#fd, `${JSON.stringify(line)}\n`);
    if (++this.#lines > COMPACT_AFTER) this.#compact();
  }

  close(): void {
    closeSync(this.#fd);
  }

  #read(text: string): void {
    const all = new Map<number, Node>([[ROOT, this.root]]);
    const end = text.lastIndexOf('\n');
    for (const one of text.slice(0, Math.max(end, 0)).split('\n')) {
      if (one === '') continue;
      const line = JSON.parse(one) as Line;
      const node = all.get(line[1]);
      if (line[0] === '+') {
        const parent = all.get(line[2])!;
        const made = newNode(line[1], line[4], parent, line[3]);
        all.set(made.id, made);
        parent.children.set(made.name, made);
        this.#byId.set(made.id, made);
        this.#next = Math.max(this.#next, made.id + 1);
      } else if (!node) continue;
      else if (line[0] === '-' || line[0] === 'u') {
        if (node.parent?.children.get(node.name) === node) node.parent.children.delete(node.name);
        node.unlinked = true;
        if (line[0] === '-') this.#byId.delete(node.id);
        if (line[0] === '-') this.found.delete(node.id);
      } else if (line[0] === 'm') {
        if (node.parent?.children.get(node.name) === node) node.parent.children.delete(node.name);
        node.parent = all.get(line[2]);
        node.name = line[3];
        node.parent?.children.set(node.name, node);
      } else this.found.set(node.id, { dirty: line[2] === 1, base: line[3] });
    }
  }

  /** Writes only what there is. Contents are written again by those who have them. */
  #compact(): void {
    const lines: Line[] = [];
    const written = new Set<number>([ROOT]);
    const add = (node: Node) => {
      if (written.has(node.id)) return;
      if (node.parent) add(node.parent);
      written.add(node.id);
      lines.push(['+', node.id, node.parent?.id ?? ROOT, node.name, node.kind]);
      if (node.unlinked) lines.push(['u', node.id]);
    };
    for (const node of this.#byId.values()) add(node);
    for (const id of written) if (!this.#byId.has(id)) lines.push(['-', id]);
    const contents = this.onCompact();
    const text = [...lines, ...contents].map((line) => `${JSON.stringify(line)}\n`).join('');
    writeFileSync(`${this.#file}.new`, text, { mode: 0o600 });
    renameSync(`${this.#file}.new`, this.#file);
    closeSync(this.#fd);
    this.#fd = openSync(this.#file, 'a', 0o600);
    this.#lines = 0;
  }

  /** The lines of contents that are here. */
  onCompact: () => Line[] = () => [];
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
  };
}
