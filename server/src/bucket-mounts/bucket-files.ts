/** A bucket as a filesystem: what the kernel asks about it, by number and name. */
import { constants } from 'node:os';
import { Semaphore } from '../lib/semaphore.ts';
import { Directories } from './directories.ts';
import type { Attributes } from './fuse/answers.ts';
import { FuseError } from './fuse/fuse-error.ts';
import { FileTree, type BucketFilesOptions } from './file-tree.ts';
import { ROOT, type Node, type Nodes } from './nodes.ts';
import { OpenFiles } from './open-files.ts';
import { Renames } from './renames.ts';
import type { Spool, Spools } from './spools.ts';

const { errno } = constants;
const WRITES_AT_ONCE = 8;

export class BucketFiles {
  readonly nodes: Nodes;
  readonly spools: Spools;
  /** Open, read, written, truncated, closed. */
  readonly open: OpenFiles;
  readonly directories: Directories;
  readonly renames: Renames;
  readonly #tree: FileTree;
  #writing: Promise<void> | undefined;

  constructor(options: BucketFilesOptions) {
    this.#tree = new FileTree(options);
    this.nodes = this.#tree.nodes;
    this.spools = this.#tree.spools;
    this.open = new OpenFiles(this.#tree);
    this.directories = new Directories(this.#tree);
    this.renames = new Renames(this.#tree);
  }

  /** Rejects if the bucket cannot be read. */
  async look(): Promise<void> {
    this.directories.releasedir(await this.directories.opendir(ROOT));
  }

  async lookup(parent: number, name: string): Promise<Attributes> {
    const node = await this.#tree.child(this.#tree.directory(parent), name);
    if (!node) throw new FuseError(errno.ENOENT);
    node.lookups++;
    return this.#tree.attributes(node);
  }

  async getattr(id: number): Promise<Attributes> {
    const node = this.nodes.find(id);
    await this.#tree.refresh(node);
    return this.#tree.attributes(node);
  }

  async unlink(parent: number, name: string, repeated: boolean): Promise<void> {
    await this.#removing(parent, name, repeated, async (directory, node) => {
      if (node.kind === 'directory') throw new FuseError(errno.EISDIR);
      const { listings } = this.#tree;
      await this.spools.inOrder(node, async () => {
        const spool = this.spools.get(node);
        const isThere = !spool?.isNew || !spool.dirty;
        if (isThere) await this.#tree.removeObject(this.nodes.keyOf(node));
        this.nodes.unlink(node);
        await this.spools.settle(node);
      });
      listings.note(this.nodes.keyOf(directory), name, undefined);
      this.#tree.keep(directory);
    });
  }

  async rmdir(parent: number, name: string, repeated: boolean): Promise<void> {
    await this.#removing(parent, name, repeated, (directory, node) =>
      this.directories.rmdir(directory, node),
    );
  }

  /** One whose removal is asked for a second time may be gone. */
  async #removing(
    parent: number,
    name: string,
    repeated: boolean,
    remove: (directory: Node, node: Node) => Promise<void>,
  ): Promise<void> {
    this.#tree.requireWritable();
    const directory = this.#tree.directory(parent);
    const node = await this.#tree.child(directory, name);
    if (node) return remove(directory, node);
    if (!repeated) throw new FuseError(errno.ENOENT);
  }

  /**
   * Gives the bucket what it lacks of files that nobody has changed for so long: of those that no process
   * closes any more, or of all.
   */
  async writeLeft(idleMs: number, { all = false }: { all?: boolean } = {}): Promise<void> {
    const until = Date.now() - idleMs;
    const { closesLate = false } = this.#tree.options;
    const isWanted = ({ node, wasFound, modifiedAtMs }: Spool) =>
      (all || closesLate || node.opens === 0 || wasFound) && modifiedAtMs <= until;
    const turns = new Semaphore(WRITES_AT_ONCE);
    const writeOne = (spool: Spool) =>
      this.spools.inOrder(spool.node, async () => {
        if (this.spools.get(spool.node) !== spool) return;
        await this.spools.upload(spool).catch(() => {});
        if (!spool.dirty || spool.node.opens === 0) await this.spools.settle(spool.node);
      });
    await Promise.all(
      this.spools
        .all()
        .filter(isWanted)
        .map((spool) => turns.run(() => writeOne(spool))),
    );
  }

  /** The same, again and again: a call begins nothing while an earlier one waits for the bucket's server. */
  writeIdle(idleMs: number): Promise<void> {
    this.#writing ??= this.writeLeft(idleMs).finally(() => (this.#writing = undefined));
    return this.#writing;
  }

  /** Leaves what the bucket lacks to the next server. */
  async close(): Promise<void> {
    this.directories.close();
    await this.#tree.close();
  }
}
