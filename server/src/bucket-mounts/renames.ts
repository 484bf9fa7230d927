/** Renames, which the S3 protocol has none of: objects are copied, and the old ones removed. */
import { constants } from 'node:os';
import { FuseError } from './fuse/fuse-error.ts';
import { RENAME_NOREPLACE } from './fuse/opcodes.ts';
import type { FileTree } from './file-tree.ts';
import { factsOf } from './listings.ts';
import { moveObjects, removeAll } from './move-objects.ts';
import type { Node, ObjectFacts } from './nodes.ts';

const { errno } = constants;
const MOST_COPIED = 5 * 1024 ** 3;
const COPY_MS = 5 * 60_000;

export class Renames {
  readonly #tree: FileTree;

  constructor(tree: FileTree) {
    this.#tree = tree;
  }

  async rename(
    from: { parent: number; name: string },
    to: { parent: number; name: string },
    { flags, repeated }: { flags: number; repeated: boolean },
  ): Promise<void> {
    const { listings, nodes } = this.#tree;
    this.#tree.requireWritable();
    if ((flags & ~RENAME_NOREPLACE) !== 0) throw new FuseError(errno.EINVAL);
    const [source, target] = [this.#tree.directory(from.parent), this.#tree.directory(to.parent)];
    this.#tree.keyIn(target, to.name);
    const node = await this.#tree.child(source, from.name);
    const there = await this.#tree.child(target, to.name);
    if (!node) {
      if (repeated && there) return;
      throw new FuseError(errno.ENOENT);
    }
    if (node === there) return;
    if (repeated && there && there.movedFrom === this.#keyOf(source, from.name, node))
      return this.#finish(source, node, there);
    if (there && (flags & RENAME_NOREPLACE) !== 0) throw new FuseError(errno.EEXIST);
    if (there && there.kind !== node.kind)
      throw new FuseError(node.kind === 'file' ? errno.EISDIR : errno.ENOTDIR);
    if (node.kind === 'directory') await this.#directory(node, target, to.name, there);
    else await this.#file(node, target, to.name, there);
    listings.note(nodes.keyOf(source), from.name, undefined);
    listings.note(nodes.keyOf(target), to.name, { kind: node.kind, facts: node.facts });
    this.#tree.keep(source);
  }

  #keyOf(directory: Node, name: string, { kind }: Node): string {
    return this.#tree.nodes.keyOf(directory) + name + (kind === 'directory' ? '/' : '');
  }

  /** An earlier server has moved it, and was killed before it removed the old object. */
  async #finish(source: Node, node: Node, there: Node): Promise<void> {
    const { listings, nodes, spools } = this.#tree;
    if (node.kind === 'directory') {
      const old = nodes.keyOf(node);
      await removeAll(this.#tree.options.bucket, this.#tree.options.prefix + old);
      listings.drop(old);
    } else {
      await spools.inOrder(there, async () => {
        const spool = spools.get(there);
        if (spool) await spools.upload(spool);
      });
      await this.#tree.removeObject(nodes.keyOf(node));
    }
    nodes.unlink(node);
    listings.note(nodes.keyOf(source), node.name, undefined);
  }

  async #file(node: Node, target: Node, name: string, there: Node | undefined): Promise<void> {
    const { nodes, spools } = this.#tree;
    const key = `${nodes.keyOf(target)}${name}`;
    const old = nodes.keyOf(node);
    if (there) await spools.inOrder(there, async () => {});
    await spools.inOrder(node, async () => {
      const spool = spools.get(node);
      const isThere = !(spool?.isNew && spool.dirty);
      if (spool?.dirty) {
        this.#replace(node, target, name, there);
        // It is another object, of which nothing was read.
        Object.assign(spool, { base: undefined, isNew: false, tried: [] });
        nodes.note(node, spool);
        await spools.upload(spool);
      } else {
        const facts = await this.#tree.refresh(node);
        if (!facts) throw new FuseError(errno.ENOENT);
        const copy = await this.#copy(old, facts, key);
        this.#replace(node, target, name, there);
        node.facts = copy;
        if (spool) spool.base = copy;
      }
      if (isThere) await this.#tree.removeObject(old);
    });
  }

  /** All are copied before the first is removed: who is interrupted has both. */
  async #directory(node: Node, target: Node, name: string, there: Node | undefined): Promise<void> {
    const { listings, nodes, options, spools } = this.#tree;
    for (let at: Node | undefined = target; at; at = at.parent)
      if (at === node) throw new FuseError(errno.EINVAL);
    const old = nodes.keyOf(node);
    const key = `${nodes.keyOf(target)}${name}/`;
    if (there && !(await listings.isEmpty(key))) throw new FuseError(errno.ENOTEMPTY);
    for (const spool of spools.left())
      if (nodes.keyOf(spool.node).startsWith(old))
        await spools.inOrder(spool.node, () => spools.upload(spool));
    await moveObjects(options.bucket, options.prefix + old, options.prefix + key, () => {
      if (there) nodes.unlink(there);
      nodes.move(node, target, name);
    });
    listings.drop(old);
    listings.drop(key);
    this.#forgetFacts(node);
    this.#tree.keep(node);
  }

  #forgetFacts(node: Node): void {
    const { listings, nodes } = this.#tree;
    listings.drop(nodes.keyOf(node));
    for (const child of node.children.values()) {
      child.facts = undefined;
      if (child.kind === 'directory') this.#forgetFacts(child);
    }
  }

  #replace(node: Node, target: Node, name: string, there: Node | undefined): void {
    const { nodes, spools } = this.#tree;
    nodes.move(node, target, name);
    if (there) spools.inOrder(there, () => spools.settle(there)).catch(() => {});
  }

  async #copy(from: string, facts: ObjectFacts, to: string): Promise<ObjectFacts> {
    const { bucket, prefix } = this.#tree.options;
    if (facts.sizeBytes > MOST_COPIED) throw new FuseError(errno.EXDEV);
    const signal = AbortSignal.timeout(COPY_MS);
    return factsOf(await bucket.copy({ key: prefix + from, ...facts }, prefix + to, { signal }));
  }
}
