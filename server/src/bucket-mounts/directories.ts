/** Directories: what is in them, and how they are made and removed. */
import { constants } from 'node:os';
import { nextSlice } from '../lib/slices.ts';
import { sortInTurns } from '../lib/sort-in-turns.ts';
import type { Attributes, DirectoryEntry } from './fuse/answers.ts';
import { FuseError } from './fuse/fuse-error.ts';
import type { FileTree } from './file-tree.ts';
import { nothing } from './move-objects.ts';
import type { Node } from './nodes.ts';

const { errno } = constants;
/** Directories that are being read, and what all of them may have. */
const MOST_LISTED = 256;
const MOST_LISTED_ENTRIES = 400_000;
/** Beyond that a listing does not make the kernel know each file. */
const MOST_KNOWN = 50_000;
const CALL_MS = 60_000;
/** Names that are looked at in one turn of the event loop. */
const IN_A_TURN = 2_048;

export class Directories {
  readonly #tree: FileTree;
  /** Directories that are being read, with what they had when that began. */
  readonly #listed = new Map<number, DirectoryEntry[]>();
  #entries = 0;
  #handles = 1;

  constructor(tree: FileTree) {
    this.#tree = tree;
  }

  async opendir(id: number): Promise<number> {
    const entries = await this.#list(this.#tree.directory(id));
    const handle = this.#handles++;
    this.#keep(handle, entries);
    return handle;
  }

  #keep(handle: number, entries: DirectoryEntry[]): void {
    this.releasedir(handle);
    this.#listed.set(handle, entries);
    this.#count(entries.length);
    const share = this.#tree.options.share;
    const isTooMuch = () =>
      this.#listed.size > MOST_LISTED || this.#entries > MOST_LISTED_ENTRIES || (share?.isCrowded ?? false);
    // The next read of one that was dropped lists again.
    while (this.#listed.size > 0 && isTooMuch()) this.releasedir(this.#listed.keys().next().value!);
  }

  /** The entries from there on; with `plus` the kernel gets to know them. */
  async readdir(
    id: number,
    { handle, offset, plus }: { handle: number; offset: number; plus: boolean },
    take: (entry: DirectoryEntry, next: number) => boolean,
  ): Promise<void> {
    const directory = this.#tree.directory(id);
    // Who begins anew with an open directory sees it as it is now: gVisor keeps one open for all who read it.
    const known = offset > 0 ? this.#listed.get(handle) : undefined;
    const entries = known ?? (await this.#list(directory));
    if (!known && this.#listed.has(handle)) this.#keep(handle, entries);
    for (let at = offset; at < entries.length; at++) {
      const entry = entries[at]!;
      const node = plus && at >= 2 ? this.#known(directory, entry) : undefined;
      const shown = node ? { ...entry, attributes: this.#tree.attributes(node) } : entry;
      if (!take(shown, at + 1)) return;
      if (node) node.lookups++;
    }
  }

  releasedir(handle: number): void {
    this.#count(-(this.#listed.get(handle)?.length ?? 0));
    this.#listed.delete(handle);
  }

  close(): void {
    for (const handle of [...this.#listed.keys()]) this.releasedir(handle);
  }

  #count(more: number): void {
    this.#entries += more;
    const { share } = this.#tree.options;
    if (share) share.entries += more;
  }

  async mkdir(parent: number, name: string, repeated: boolean): Promise<Attributes> {
    const { listings, nodes, options } = this.#tree;
    this.#tree.requireWritable();
    const directory = this.#tree.directory(parent);
    const key = `${this.#tree.keyIn(directory, name)}/`;
    const there = await this.#tree.child(directory, name);
    if (there && !(repeated && there.kind === 'directory')) throw new FuseError(errno.EEXIST);
    const signal = AbortSignal.timeout(CALL_MS);
    await options.bucket.put(options.prefix + key, nothing(), { sizeBytes: 0, signal });
    listings.note(nodes.keyOf(directory), name, { kind: 'directory' });
    const node = nodes.enter(directory, name, 'directory');
    node.lookups++;
    return this.#tree.attributes(node);
  }

  /** Call it with one that is there. */
  async rmdir(directory: Node, node: Node): Promise<void> {
    const { listings, nodes, spools } = this.#tree;
    if (node.kind !== 'directory') throw new FuseError(errno.ENOTDIR);
    const key = nodes.keyOf(node);
    const hasOwn = [...node.children.values()].some((child) => spools.get(child)?.dirty || child.kept);
    if (hasOwn || !(await listings.isEmpty(key))) throw new FuseError(errno.ENOTEMPTY);
    await this.#tree.removeObject(key);
    node.kept = false;
    nodes.unlink(node);
    listings.drop(key);
    listings.note(nodes.keyOf(directory), node.name, undefined);
    this.#tree.keep(directory);
  }

  /**
   * A directory can be large, and programs ask for it as often as they like: the work of a project takes
   * turns.
   */
  async #list(directory: Node): Promise<DirectoryEntry[]> {
    const { listings, nodes, options, spools } = this.#tree;
    const pause = () => nextSlice(options.project);
    const names = new Map<string, DirectoryEntry>();
    let looked = 0;
    for (const [name, { kind, facts }] of await listings.list(nodes.keyOf(directory))) {
      if (++looked % IN_A_TURN === 0) await pause();
      names.set(name, { name, kind });
      const known = directory.children.get(name);
      if (known?.kind === kind && facts && !spools.get(known)) known.facts = facts;
    }
    for (const child of directory.children.values())
      if (child.kept || spools.get(child)) names.set(child.name, { name: child.name, kind: child.kind });
    const sorted = await sortInTurns(
      [...names.values()],
      (one, other) => (one.name < other.name ? -1 : 1),
      pause,
    );
    return [{ name: '.', kind: 'directory' }, { name: '..', kind: 'directory' }, ...sorted];
  }

  #known(directory: Node, { name, kind }: DirectoryEntry): Node | undefined {
    const { listings, nodes } = this.#tree;
    const known = directory.children.get(name);
    if (known) return known.kind === kind && (kind === 'directory' || known.facts) ? known : undefined;
    const facts = listings.peek(nodes.keyOf(directory), name)?.facts;
    if (nodes.size >= MOST_KNOWN || (kind === 'file' && !facts)) return undefined;
    const node = nodes.enter(directory, name, kind);
    node.facts = facts;
    return node;
  }
}
