/**
 * What the parts of `BucketFiles` have in common: names, what the bucket has under them, and what is being
 * written.
 */
import { constants } from 'node:os';
import type { Bucket } from '../s3/bucket.ts';
import type { BlockCache } from './block-cache.ts';
import type { Attributes } from './fuse/answers.ts';
import { FuseError } from './fuse/fuse-error.ts';
import { Listings, SEEN_MS } from './listings.ts';
import { Nodes, type EntryShare, type Node, type ObjectFacts } from './nodes.ts';
import type { ProjectSpace } from './spool-room.ts';
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
  /** Files may stay open that programs have closed: those that nobody changes count as closed. */
  closesLate?: boolean | undefined;
  /** What stays free on the disk of the contents. */
  leastFree?: number;
  /** Files that are being written, or that the bucket does not take. */
  mostContents?: number;
  /** What all mounts of the project take and keep. */
  share?: (ProjectSpace & EntryShare) | undefined;
  cache: BlockCache;
  /** Its name in the cache, and that of all who share. */
  id: string;
  project: string;
  onFailed: OnFailed;
}

/** Objects have none. These are those that programs usually give. */
export const MODES = { file: 0o644, directory: 0o755 };
/** Of the protocol: of a key with all of its parts. */
const LONGEST_KEY = 1024;
const CALL_MS = 60_000;

export class FileTree {
  readonly options: BucketFilesOptions;
  readonly nodes: Nodes;
  readonly spools: Spools;
  readonly listings: Listings;
  /** Directories have no time of their own. */
  readonly #sinceMs = Date.now();

  constructor(options: BucketFilesOptions) {
    const { bucket, prefix, journal, leastFree, mostContents, onFailed, share } = options;
    this.options = options;
    this.nodes = new Nodes(journal, { share });
    this.listings = new Listings(bucket, prefix, share);
    this.spools = new Spools({
      dir: options.spoolDir,
      nodes: this.nodes,
      bucket,
      prefix,
      mostBytes: options.mostSpooled,
      ...(leastFree !== undefined && { leastFree }),
      ...(mostContents !== undefined && { mostContents }),
      space: share,
      onFailed,
      onWritten: (node, facts) => {
        node.facts = facts;
        if (node.parent && !node.unlinked)
          this.listings.note(this.nodes.keyOf(node.parent), node.name, { kind: 'file', facts });
      },
    });
  }

  /** Leaves what the bucket lacks to the next server. */
  async close(): Promise<void> {
    await this.spools.close();
    this.listings.close();
    this.nodes.close();
  }

  directory(id: number): Node {
    const node = this.nodes.find(id);
    if (node.kind !== 'directory') throw new FuseError(errno.ENOTDIR);
    return node;
  }

  requireWritable(): void {
    if (this.options.readOnly) throw new FuseError(errno.EROFS);
  }

  /** The key of a name in a directory. Throws `ENAMETOOLONG` for one that no bucket takes. */
  keyIn(directory: Node, name: string): string {
    const key = this.nodes.keyOf(directory) + name;
    if (Buffer.byteLength(this.options.prefix + key) >= LONGEST_KEY) throw new FuseError(errno.ENAMETOOLONG);
    return key;
  }

  /** What a name leads to, as far as it is known for a moment, or else as the bucket says. */
  async child(directory: Node, name: string): Promise<Node | undefined> {
    const known = directory.children.get(name);
    if (known && (this.spools.get(known) || known.kept || isFresh(known))) return known;
    const found = await this.listings.find(this.nodes.keyOf(directory), name);
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
  async refresh(node: Node): Promise<ObjectFacts | undefined> {
    const spool = this.spools.get(node);
    if (spool || node.kind === 'directory' || node.unlinked || isFresh(node)) return node.facts;
    const facts = await this.listings.look(this.nodes.keyOf(node));
    if (!facts) {
      // It may have been written meanwhile.
      if (this.spools.get(node)) return node.facts;
      this.nodes.unlink(node);
      throw new FuseError(errno.ENOENT);
    }
    node.facts = facts;
    return facts;
  }

  attributes(node: Node): Attributes {
    const spool = this.spools.get(node);
    return {
      node: node.id,
      kind: node.kind,
      sizeBytes: spool?.size ?? node.facts?.sizeBytes ?? 0,
      modifiedAtMs: spool?.modifiedAtMs ?? node.facts?.modifiedAtMs ?? this.#sinceMs,
      owner: this.options.owner,
      mode: MODES[node.kind],
      validMs: spool ? 0 : SEEN_MS,
    };
  }

  async removeObject(key: string): Promise<void> {
    const { bucket, prefix } = this.options;
    await bucket.remove([prefix + key], { signal: AbortSignal.timeout(CALL_MS) });
  }

  /** A directory without objects is none to the bucket. It stays until it is removed, as others do. */
  keep(directory: Node): void {
    if (directory !== this.nodes.root) directory.kept = true;
  }
}

export function isFresh({ facts }: Node): boolean {
  return facts !== undefined && facts.atMs > Date.now() - SEEN_MS;
}
