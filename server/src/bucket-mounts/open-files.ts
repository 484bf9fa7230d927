/** Files that are open: read, written, truncated, closed. */
import { constants } from 'node:os';
import { FuseError } from './fuse/fuse-error.ts';
import type { Attributes } from './fuse/answers.ts';
import { OpenFlag, SetAttr } from './fuse/opcodes.ts';
import { MODES, type FileTree } from './file-tree.ts';
import type { Node } from './nodes.ts';
import { ReadAhead } from './read-ahead.ts';

const { errno } = constants;
const MOST_OPEN = 4_096;

export class OpenFiles {
  readonly #tree: FileTree;
  readonly #reads: ReadAhead;
  /** Handles of an earlier server are none of these. */
  #next = Date.now() * 1_000;
  /** Handles of those who only read, and whose close has nothing to write. */
  readonly #readers = new Set<number>();
  #open = 0;

  constructor(tree: FileTree) {
    const { bucket, prefix, cache, id, project } = tree.options;
    this.#tree = tree;
    this.#reads = new ReadAhead(bucket, prefix, cache, { mount: id, project });
  }

  async setattr(
    id: number,
    given: { valid: number; size: number; mode: number; uid: number; gid: number },
  ): Promise<Attributes> {
    const { nodes, options, spools } = this.#tree;
    this.#tree.requireWritable();
    const node = nodes.find(id);
    const { owner } = options;
    const { valid } = given;
    // An object has no modes and no owner. What would change nothing is done.
    const changes =
      ((valid & SetAttr.mode) !== 0 && (given.mode & 0o7777) !== MODES[node.kind]) ||
      ((valid & SetAttr.uid) !== 0 && given.uid !== owner.uid) ||
      ((valid & SetAttr.gid) !== 0 && given.gid !== owner.gid);
    if (changes) throw new FuseError(errno.EOPNOTSUPP);
    if ((valid & SetAttr.size) !== 0) {
      requireFile(node);
      await spools.inOrder(node, () => this.#truncate(node, given.size));
    } else await this.#tree.refresh(node);
    return this.#tree.attributes(node);
  }

  async #truncate(node: Node, size: number): Promise<void> {
    const { nodes, spools } = this.#tree;
    const spool =
      size === 0
        ? await spools.begin(node, { isNew: false })
        : await spools.ensure(node, nodes.keyOf(node), await this.#tree.refresh(node));
    if (spool.size !== size) await spools.truncate(spool, size);
    if (node.opens > 0) return;
    // Nobody closes it whose error could be seen later.
    await spools.upload(spool);
    await spools.settle(node);
  }

  async open(id: number, flags: number): Promise<{ handle: number; keepsCache: boolean }> {
    const { nodes, spools } = this.#tree;
    const node = nodes.find(id);
    requireFile(node);
    const writes = (flags & OpenFlag.accessMode) !== OpenFlag.readOnly;
    if (writes || (flags & OpenFlag.truncate) !== 0) this.#tree.requireWritable();
    this.#requireHandle();
    // Counted first, so that nobody drops its content meanwhile.
    this.#count(node, 1);
    try {
      if ((flags & OpenFlag.truncate) !== 0)
        await spools.inOrder(node, () => spools.begin(node, { isNew: false }));
      else await this.#tree.refresh(node);
    } catch (error) {
      this.#count(node, -1);
      throw error;
    }
    const etag = spools.get(node) ? undefined : node.facts?.etag;
    const keepsCache = etag !== undefined && etag !== '' && etag === node.openedEtag;
    node.openedEtag = etag;
    const handle = this.#next++;
    if (!writes) this.#readers.add(handle);
    return { handle, keepsCache };
  }

  async create(
    parent: number,
    name: string,
    flags: number,
  ): Promise<{ attributes: Attributes; handle: number }> {
    const { nodes, spools } = this.#tree;
    this.#tree.requireWritable();
    this.#requireHandle();
    const directory = this.#tree.directory(parent);
    this.#tree.keyIn(directory, name);
    const there = await this.#tree.child(directory, name);
    if (there && (flags & OpenFlag.exclusive) !== 0) throw new FuseError(errno.EEXIST);
    if (there && there.kind === 'directory') throw new FuseError(errno.EISDIR);
    const node = there ?? nodes.enter(directory, name, 'file');
    this.#count(node, 1);
    try {
      if (!there || (flags & OpenFlag.truncate) !== 0)
        await spools.inOrder(node, () => spools.begin(node, { isNew: !there }));
    } catch (error) {
      this.#count(node, -1);
      if (!there) nodes.unlink(node);
      nodes.release(node);
      throw error;
    }
    node.lookups++;
    return { attributes: this.#tree.attributes(node), handle: this.#next++ };
  }

  async read(id: number, from: number, length: number): Promise<Buffer[]> {
    const { nodes, spools } = this.#tree;
    const node = nodes.find(id);
    const spool = spools.get(node);
    if (spool) return [await spools.read(spool, from, length)];
    requireFile(node);
    const facts = node.facts ?? (await this.#tree.refresh(node));
    if (!facts) throw new FuseError(errno.ESTALE);
    try {
      return await this.#reads.read(node, nodes.keyOf(node), facts, from, length);
    } catch (error) {
      // It was there when it was opened.
      if ((error as { code?: string }).code === 'not_found') throw new FuseError(errno.ESTALE);
      throw error;
    }
  }

  async write(id: number, data: Buffer, offset: number): Promise<void> {
    const { nodes, spools } = this.#tree;
    this.#tree.requireWritable();
    const node = nodes.find(id);
    requireFile(node);
    await spools.inOrder(node, async () => {
      const spool = await spools.ensure(node, nodes.keyOf(node), node.facts);
      await spools.write(spool, data, offset);
    });
  }

  /** Resolves when the bucket has what was written, unless that handle is one of a reader. */
  async flush(id: number, handle?: number): Promise<void> {
    const { nodes, spools } = this.#tree;
    const node = nodes.find(id);
    if (!spools.get(node)?.dirty || this.#readers.has(handle ?? 0)) return;
    await spools.inOrder(node, async () => {
      const spool = spools.get(node);
      if (spool) await spools.upload(spool);
    });
  }

  async release(id: number, handle?: number): Promise<void> {
    const { nodes, spools } = this.#tree;
    this.#readers.delete(handle ?? 0);
    const node = nodes.find(id);
    this.#count(node, -1);
    await spools.inOrder(node, () => spools.settle(node));
    nodes.release(node);
  }

  #requireHandle(): void {
    if (this.#open >= MOST_OPEN) throw new FuseError(errno.ENFILE);
  }

  #count(node: Node, by: 1 | -1): void {
    // An earlier server may have opened it.
    if (by < 0 && node.opens === 0) return;
    node.opens += by;
    this.#open += by;
  }
}

function requireFile({ kind }: Node): void {
  if (kind === 'directory') throw new FuseError(errno.EISDIR);
}
