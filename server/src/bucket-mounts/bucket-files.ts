/** A bucket as a filesystem: what the kernel asks about it, by number and name. */
import { constants } from 'node:os';
import type { Bucket } from '../s3/bucket.ts';
import type { Attributes, DirectoryEntry } from './fuse/answers.ts';
import { FuseError } from './fuse/fuse-error.ts';
import { OpenFlag, RENAME_NOREPLACE, SetAttr } from './fuse/opcodes.ts';
import { factsOf, Listings, SEEN_MS, type Entry } from './listings.ts';
import { moveObjects, nothing } from './move-objects.ts';
import { Nodes, type Node } from './nodes.ts';
import { ReadAhead } from './read-ahead.ts';
import type { BlockCache } from './block-cache.ts';
import { Spools, type OnFailed } from './spools.ts';

const { errno } = constants;

export interface BucketFilesOptions {
  bucket: Bucket;
  /** Empty, or ends with a slash. */
  prefix: string;
  readOnly: boolean;
  /** Whose files they seem to be, by ids of the host. */
  owner: { uid: number; gid: number };
  journal: string;
  spoolDir: string;
  mostSpooled: number;
  cache: BlockCache;
  /** Its name in the cache. */
  id: string;
  onFailed: OnFailed;
}

/** Objects have none. These are those that programs usually give. */
const MODES = { file: 0o644, directory: 0o755 };
const MOST_OPEN = 4_096;
const MOST_LISTED = 256;
/** Beyond that a listing does not make the kernel know each file. */
const MOST_KNOWN = 50_000;

export class BucketFiles {
  readonly nodes: Nodes;
  readonly spools: Spools;
  readonly #options: BucketFilesOptions;
  readonly #listings: Listings;
  readonly #reads: ReadAhead;
  /** Directories that are being read, with what they had when that began. */
  readonly #listed = new Map<number, DirectoryEntry[]>();
  /** Directories have no time of their own. */
  readonly #sinceMs = Date.now();
  #handles = 1;
  #open = 0;

  constructor(options: BucketFilesOptions) {
    const { bucket, prefix, cache, id, journal } = options;
    this.#options = options;
    this.nodes = new Nodes(journal);
    this.#listings = new Listings(bucket, prefix);
    this.#reads = new ReadAhead(bucket, prefix, cache, id);
    this.spools = new Spools({
      dir: options.spoolDir,
      nodes: this.nodes,
      bucket,
      prefix,
      mostBytes: options.mostSpooled,
      onFailed: options.onFailed,
      onWritten: (node, facts) => {
        node.facts = facts;
        if (node.parent)
          this.#listings.note(this.nodes.keyOf(node.parent), node.name, { kind: 'file', facts });
      },
    });
  }

  async lookup(parent: number, name: string): Promise<Attributes> {
    const node = await this.#child(this.#directory(parent), name);
    if (!node) throw new FuseError(errno.ENOENT);
    node.lookups++;
    return this.#attributes(node);
  }

  async getattr(id: number): Promise<Attributes> {
    const node = this.nodes.find(id);
    await this.#refresh(node);
    return this.#attributes(node);
  }

  async setattr(
    id: number,
    given: { valid: number; size: number; mode: number; uid: number; gid: number },
  ): Promise<Attributes> {
    this.#requireWritable();
    const node = this.nodes.find(id);
    const { owner } = this.#options;
    const { valid } = given;
    // An object has no modes and no owner. What would change nothing is done.
    const changes =
      ((valid & SetAttr.mode) !== 0 && (given.mode & 0o7777) !== MODES[node.kind]) ||
      ((valid & SetAttr.uid) !== 0 && given.uid !== owner.uid) ||
      ((valid & SetAttr.gid) !== 0 && given.gid !== owner.gid);
    if (changes) throw new FuseError(errno.EOPNOTSUPP);
    if ((valid & SetAttr.size) !== 0) {
      this.#requireFile(node);
      await this.spools.inOrder(node, async () => {
        const spool =
          given.size === 0
            ? await this.spools.begin(node, { isNew: false })
            : await this.spools.ensure(node, this.nodes.keyOf(node), await this.#refresh(node));
        if (spool.size !== given.size) await this.spools.truncate(spool, given.size);
        // Nobody closes it whose error could be seen later.
        if (node.opens === 0) {
          await this.spools.upload(spool);
          await this.spools.settle(node);
        }
      });
    } else await this.#refresh(node);
    return this.#attributes(node);
  }

  async open(id: number, flags: number): Promise<{ handle: number; keepsCache: boolean }> {
    const node = this.nodes.find(id);
    this.#requireFile(node);
    const writes = (flags & OpenFlag.accessMode) !== OpenFlag.readOnly;
    if (writes || (flags & OpenFlag.truncate) !== 0) this.#requireWritable();
    this.#requireHandle();
    // Counted first, so that nobody drops its content meanwhile.
    this.#opened(node, 1);
    try {
      if ((flags & OpenFlag.truncate) !== 0)
        await this.spools.inOrder(node, () => this.spools.begin(node, { isNew: false }));
      else await this.#refresh(node);
    } catch (error) {
      this.#opened(node, -1);
      throw error;
    }
    const etag = this.spools.get(node) ? undefined : node.facts?.etag;
    const keepsCache = etag !== undefined && etag !== '' && etag === node.openedEtag;
    node.openedEtag = etag;
    return { handle: this.#handles++, keepsCache };
  }

  async create(
    parent: number,
    name: string,
    flags: number,
  ): Promise<{ attributes: Attributes; handle: number }> {
    this.#requireWritable();
    this.#requireHandle();
    const directory = this.#directory(parent);
    const there = await this.#child(directory, name);
    if (there && (flags & OpenFlag.exclusive) !== 0) throw new FuseError(errno.EEXIST);
    if (there && there.kind === 'directory') throw new FuseError(errno.EISDIR);
    const node = there ?? this.nodes.enter(directory, name, 'file');
    this.#opened(node, 1);
    try {
      if (!there || (flags & OpenFlag.truncate) !== 0)
        await this.spools.inOrder(node, () => this.spools.begin(node, { isNew: !there }));
    } catch (error) {
      this.#opened(node, -1);
      if (!there) this.nodes.unlink(node);
      throw error;
    }
    node.lookups++;
    return { attributes: this.#attributes(node), handle: this.#handles++ };
  }

  async read(id: number, from: number, length: number): Promise<Buffer[]> {
    const node = this.nodes.find(id);
    const spool = this.spools.get(node);
    if (spool) return [await this.spools.read(spool, from, length)];
    const facts = node.facts ?? (await this.#refresh(node));
    if (!facts) throw new FuseError(errno.ESTALE);
    try {
      return await this.#reads.read(node, this.nodes.keyOf(node), facts, from, length);
    } catch (error) {
      // It was there when it was opened.
      if ((error as { code?: string }).code === 'not_found') throw new FuseError(errno.ESTALE);
      throw error;
    }
  }

  async write(id: number, data: Buffer, offset: number): Promise<void> {
    this.#requireWritable();
    const node = this.nodes.find(id);
    await this.spools.inOrder(node, async () => {
      const spool = await this.spools.ensure(node, this.nodes.keyOf(node), node.facts);
      await this.spools.write(spool, data, offset);
    });
  }

  /** Resolves when the bucket has what was written. */
  async flush(id: number): Promise<void> {
    const node = this.nodes.find(id);
    if (!this.spools.get(node)?.dirty) return;
    await this.spools.inOrder(node, async () => {
      const spool = this.spools.get(node);
      if (spool) await this.spools.upload(spool);
    });
  }

  async release(id: number): Promise<void> {
    const node = this.nodes.find(id);
    this.#opened(node, -1);
    await this.spools.inOrder(node, () => this.spools.settle(node));
    this.nodes.release(node);
  }

  async opendir(id: number): Promise<number> {
    const entries = await this.#entries(this.#directory(id));
    const handle = this.#handles++;
    this.#listed.set(handle, entries);
    // The next read of one that was dropped lists again.
    if (this.#listed.size > MOST_LISTED) this.#listed.delete(this.#listed.keys().next().value!);
    return handle;
  }

  /** The entries from there on; with `plus` the kernel gets to know them. */
  async readdir(
    id: number,
    { handle, offset, plus }: { handle: number; offset: number; plus: boolean },
    take: (entry: DirectoryEntry, next: number) => boolean,
  ): Promise<void> {
    const directory = this.#directory(id);
    const entries = this.#listed.get(handle) ?? (await this.#entries(directory));
    for (let at = offset; at < entries.length; at++) {
      const entry = entries[at]!;
      const node = plus && at >= 2 ? this.#known(directory, entry) : undefined;
      const shown = node ? { ...entry, attributes: this.#attributes(node) } : entry;
      if (!take(shown, at + 1)) return;
      if (node) node.lookups++;
    }
  }

  releasedir(handle: number): void {
    this.#listed.delete(handle);
  }

  async mkdir(parent: number, name: string, repeated: boolean): Promise<Attributes> {
    this.#requireWritable();
    const { bucket, prefix } = this.#options;
    const directory = this.#directory(parent);
    const there = await this.#child(directory, name);
    if (there && !(repeated && there.kind === 'directory')) throw new FuseError(errno.EEXIST);
    const key = `${this.nodes.keyOf(directory)}${name}/`;
    await bucket.put(prefix + key, nothing(), { sizeBytes: 0, signal: soon() });
    this.#listings.note(this.nodes.keyOf(directory), name, { kind: 'directory' });
    const node = this.nodes.enter(directory, name, 'directory');
    node.lookups++;
    return this.#attributes(node);
  }

  async unlink(parent: number, name: string, repeated: boolean): Promise<void> {
    this.#requireWritable();
    const directory = this.#directory(parent);
    const node = await this.#child(directory, name);
    if (!node) {
      if (repeated) return;
      throw new FuseError(errno.ENOENT);
    }
    if (node.kind === 'directory') throw new FuseError(errno.EISDIR);
    await this.spools.inOrder(node, async () => {
      const spool = this.spools.get(node);
      const isThere = !spool?.isNew || !spool.dirty;
      if (isThere) await this.#remove(this.nodes.keyOf(node));
      this.nodes.unlink(node);
      await this.spools.settle(node);
    });
    this.#listings.note(this.nodes.keyOf(directory), name, undefined);
    this.#keep(directory);
  }

  async rmdir(parent: number, name: string, repeated: boolean): Promise<void> {
    this.#requireWritable();
    const directory = this.#directory(parent);
    const node = await this.#child(directory, name);
    if (!node) {
      if (repeated) return;
      throw new FuseError(errno.ENOENT);
    }
    if (node.kind !== 'directory') throw new FuseError(errno.ENOTDIR);
    const key = this.nodes.keyOf(node);
    const hasOwn = [...node.children.values()].some((child) => this.spools.get(child)?.dirty || child.kept);
    if (hasOwn || !(await this.#listings.isEmpty(key))) throw new FuseError(errno.ENOTEMPTY);
    await this.#remove(key);
    node.kept = false;
    this.nodes.unlink(node);
    this.#listings.drop(key);
    this.#listings.note(this.nodes.keyOf(directory), name, undefined);
    this.#keep(directory);
  }

  async rename(
    from: { parent: number; name: string },
    to: { parent: number; name: string },
    { flags, repeated }: { flags: number; repeated: boolean },
  ): Promise<void> {
    this.#requireWritable();
    if ((flags & ~RENAME_NOREPLACE) !== 0) throw new FuseError(errno.EINVAL);
    const [source, target] = [this.#directory(from.parent), this.#directory(to.parent)];
    const [node, there] = [await this.#child(source, from.name), await this.#child(target, to.name)];
    if (!node) {
      if (repeated && there) return;
      throw new FuseError(errno.ENOENT);
    }
    if (node === there) return;
    if (there && (flags & RENAME_NOREPLACE) !== 0) throw new FuseError(errno.EEXIST);
    if (there && there.kind !== node.kind)
      throw new FuseError(node.kind === 'file' ? errno.EISDIR : errno.ENOTDIR);
    if (node.kind === 'directory') await this.#renameDirectory(node, target, to.name, there);
    else await this.#renameFile(node, target, to.name, there);
    const entry: Entry = { kind: node.kind, facts: node.facts };
    this.#listings.note(this.nodes.keyOf(source), from.name, undefined);
    this.#listings.note(this.nodes.keyOf(target), to.name, entry);
    this.#keep(source);
  }

  /** What no process closes any more: contents that the bucket could not be given, or that a server has left. */
  async writeLeft(idleMs: number): Promise<void> {
    for (const spool of this.spools.all()) {
      const isLeft = spool.node.opens === 0 || spool.wasFound;
      if (!isLeft || spool.modifiedAtMs > Date.now() - idleMs) continue;
      await this.spools.inOrder(spool.node, async () => {
        await this.spools.upload(spool).catch(() => {});
        if (!spool.dirty || spool.node.opens === 0) await this.spools.settle(spool.node);
      });
    }
  }

  async #renameFile(node: Node, target: Node, name: string, there: Node | undefined): Promise<void> {
    const key = `${this.nodes.keyOf(target)}${name}`;
    const old = this.nodes.keyOf(node);
    if (there) await this.spools.inOrder(there, async () => {});
    await this.spools.inOrder(node, async () => {
      const spool = this.spools.get(node);
      const isThere = !(spool?.isNew && spool.dirty);
      if (spool?.dirty) {
        this.#replace(node, target, name, there);
        // It is another object, of which nothing was read.
        Object.assign(spool, { base: undefined, isNew: false });
        await this.spools.upload(spool);
      } else {
        const facts = await this.#refresh(node);
        if (!facts) throw new FuseError(errno.ENOENT);
        const copy = await this.#copy(old, facts, key);
        this.#replace(node, target, name, there);
        node.facts = copy;
        if (spool) spool.base = copy;
      }
      if (isThere) await this.#remove(old);
    });
  }

  /** All are copied before the first is removed: who is interrupted has both. */
  async #renameDirectory(node: Node, target: Node, name: string, there: Node | undefined): Promise<void> {
    for (let at: Node | undefined = target; at; at = at.parent)
      if (at === node) throw new FuseError(errno.EINVAL);
    const old = this.nodes.keyOf(node);
    const key = `${this.nodes.keyOf(target)}${name}/`;
    if (there && !(await this.#listings.isEmpty(key))) throw new FuseError(errno.ENOTEMPTY);
    const { bucket, prefix } = this.#options;
    for (const spool of this.spools.all())
      if (spool.dirty && !spool.node.unlinked && this.nodes.keyOf(spool.node).startsWith(old))
        await this.spools.inOrder(spool.node, () => this.spools.upload(spool));
    await moveObjects(bucket, prefix + old, prefix + key);
    this.#listings.drop(old);
    this.#listings.drop(key);
    if (there) this.nodes.unlink(there);
    this.nodes.move(node, target, name);
    this.#forgetFacts(node);
    this.#keep(node);
  }

  #forgetFacts(node: Node): void {
    this.#listings.drop(this.nodes.keyOf(node));
    for (const child of node.children.values()) {
      child.facts = undefined;
      if (child.kind === 'directory') this.#forgetFacts(child);
    }
  }

  #replace(node: Node, target: Node, name: string, there: Node | undefined): void {
    this.nodes.move(node, target, name);
    if (there) this.spools.inOrder(there, () => this.spools.settle(there)).catch(() => {});
  }

  async #copy(from: string, facts: { sizeBytes: number; etag: string; modifiedAtMs: number }, to: string) {
    const { bucket, prefix } = this.#options;
    if (facts.sizeBytes > 5 * 1024 ** 3) throw new FuseError(errno.EXDEV);
    return factsOf(
      await bucket.copy({ key: prefix + from, ...facts }, prefix + to, {
        signal: AbortSignal.timeout(5 * 60_000),
      }),
    );
  }

  async #remove(key: string): Promise<void> {
    const { bucket, prefix } = this.#options;
    await bucket.remove([prefix + key], { signal: soon() });
  }

  /** A directory without objects is none to the bucket. It stays until it is removed, as others do. */
  #keep(directory: Node): void {
    if (directory !== this.nodes.root) directory.kept = true;
  }

  /** What a name leads to, as far as it is known for a moment, or else as the bucket says. */
  async #child(directory: Node, name: string): Promise<Node | undefined> {
    const known = directory.children.get(name);
    if (known && (this.spools.get(known) || known.kept || isFresh(known))) return known;
    const found = await this.#listings.find(this.nodes.keyOf(directory), name);
    const now = directory.children.get(name);
    if (now && (this.spools.get(now) || now.kept)) return now;
    if (!found) {
      if (now) this.nodes.unlink(now);
      return undefined;
    }
    const node = this.nodes.enter(directory, name, found.kind);
    if (found.facts) node.facts = found.facts;
    return node;
  }

  /** Looks again at a file that was seen too long ago. */
  async #refresh(node: Node) {
    const spool = this.spools.get(node);
    if (spool || node.kind === 'directory' || node.unlinked || isFresh(node)) return node.facts;
    const facts = await this.#listings.look(this.nodes.keyOf(node));
    if (!facts) {
      this.nodes.unlink(node);
      throw new FuseError(errno.ENOENT);
    }
    node.facts = facts;
    return facts;
  }

  #attributes(node: Node): Attributes {
    const spool = this.spools.get(node);
    return {
      node: node.id,
      kind: node.kind,
      sizeBytes: spool?.size ?? node.facts?.sizeBytes ?? 0,
      modifiedAtMs: spool?.modifiedAtMs ?? node.facts?.modifiedAtMs ?? this.#sinceMs,
      owner: this.#options.owner,
      mode: MODES[node.kind],
      validMs: spool ? 0 : SEEN_MS,
    };
  }

  async #entries(directory: Node): Promise<DirectoryEntry[]> {
    const names = new Map<string, DirectoryEntry>();
    for (const [name, { kind, facts }] of await this.#listings.list(this.nodes.keyOf(directory))) {
      names.set(name, { name, kind });
      const known = directory.children.get(name);
      if (known?.kind === kind && facts) known.facts = facts;
    }
    for (const child of directory.children.values())
      if (child.kept || this.spools.get(child)) names.set(child.name, { name: child.name, kind: child.kind });
    const sorted = [...names.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
    return [{ name: '.', kind: 'directory' }, { name: '..', kind: 'directory' }, ...sorted];
  }

  #known(directory: Node, { name, kind }: DirectoryEntry): Node | undefined {
    const known = directory.children.get(name);
    if (known) return known.kind === kind && (kind === 'directory' || known.facts) ? known : undefined;
    const facts = this.#listings.peek(this.nodes.keyOf(directory), name)?.facts;
    if (this.nodes.size >= MOST_KNOWN || (kind === 'file' && !facts)) return undefined;
    const node = this.nodes.enter(directory, name, kind);
    node.facts = facts;
    return node;
  }

  #directory(id: number): Node {
    const node = this.nodes.find(id);
    if (node.kind !== 'directory') throw new FuseError(errno.ENOTDIR);
    return node;
  }

  #requireFile({ kind }: Node): void {
    if (kind === 'directory') throw new FuseError(errno.EISDIR);
  }

  #requireWritable(): void {
    if (this.#options.readOnly) throw new FuseError(errno.EROFS);
  }

  #requireHandle(): void {
    if (this.#open >= MOST_OPEN) throw new FuseError(errno.ENFILE);
  }

  #opened(node: Node, by: 1 | -1): void {
    // An earlier server may have opened it.
    if (by < 0 && node.opens === 0) return;
    node.opens += by;
    this.#open += by;
  }
}

function isFresh({ facts }: Node): boolean {
  return facts !== undefined && facts.atMs > Date.now() - SEEN_MS;
}

const soon = () => AbortSignal.timeout(60_000);
