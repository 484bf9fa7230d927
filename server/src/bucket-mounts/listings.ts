/** What a bucket has, as it was when it was asked the last time. */
import { constants } from 'node:os';
import { ownText } from '../lib/own-text.ts';
import type { Bucket } from '../s3/bucket.ts';
import { FuseError } from './fuse/fuse-error.ts';
import { isName } from './fuse/request.ts';
import type { EntryShare, Kind, ObjectFacts } from './nodes.ts';

export interface Entry {
  kind: Kind;
  /** Absent for a directory. */
  facts?: ObjectFacts | undefined;
}

/** How long what was seen counts: listings, sizes, and that something is not there. */
export const SEEN_MS = 5_000;
const CALL_MS = 60_000;
/** A directory with more is not listed to find one name. */
const ONE_PAGE = 1_000;
const MOST_ENTRIES = 200_000;
const MOST_LISTINGS = 500;
const MOST_KEPT = 300_000;

interface Listing {
  atMs: number;
  entries: Map<string, Entry>;
}

export class Listings {
  readonly #bucket: Bucket;
  readonly #prefix: string;
  readonly #listings = new Map<string, Listing>();
  /** Directories that were too large to be listed for one name, and when that was. */
  readonly #large = new Map<string, number>();
  readonly #coming = new Map<string, Promise<Listing | undefined>>();
  readonly #share: EntryShare;
  #kept = 0;

  constructor(bucket: Bucket, prefix: string, share: EntryShare = { entries: 0, isCrowded: false }) {
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#share = share;
  }

  /** How many entries are kept. */
  get size(): number {
    return this.#kept;
  }

  /** All of a directory, whose key is empty or ends with a slash. */
  async list(directory: string): Promise<ReadonlyMap<string, Entry>> {
    const known = this.#fresh(directory);
    if (known) return known.entries;
    return (await this.#load(directory, MOST_ENTRIES))!.entries;
  }

  /** What a name in a directory is, or undefined. */
  async find(directory: string, name: string): Promise<Entry | undefined> {
    const known = this.#fresh(directory);
    if (known) return known.entries.get(name);
    if ((this.#large.get(directory) ?? 0) < Date.now() - 60_000) {
      const listing = await this.#load(directory, ONE_PAGE);
      if (listing) return listing.entries.get(name);
    }
    return this.#probe(directory + name);
  }

  /** What was seen the last time, however long ago. */
  peek(directory: string, name: string): Entry | undefined {
    return this.#listings.get(directory)?.entries.get(name);
  }

  /** An object as it is now. */
  async look(key: string): Promise<ObjectFacts | undefined> {
    const found = await this.#bucket.head(this.#prefix + key, { signal: AbortSignal.timeout(CALL_MS) });
    return found && factsOf(found);
  }

  /** Takes over a change that was made here. */
  note(directory: string, name: string, entry: Entry | undefined): void {
    const listing = this.#listings.get(directory);
    if (!listing) return;
    const before = listing.entries.size;
    if (entry) listing.entries.set(name, entry);
    else listing.entries.delete(name);
    this.#count(listing.entries.size - before);
  }

  drop(directory: string): void {
    const listing = this.#listings.get(directory);
    if (!listing) return;
    this.#listings.delete(directory);
    this.#count(-listing.entries.size);
  }

  close(): void {
    for (const directory of [...this.#listings.keys()]) this.drop(directory);
  }

  #count(more: number): void {
    this.#kept += more;
    this.#share.entries += more;
  }

  /** Whether anything is below a directory beside itself. */
  async isEmpty(directory: string): Promise<boolean> {
    for await (const { key } of this.#bucket.list(this.#prefix + directory, {
      signal: AbortSignal.timeout(CALL_MS),
    }))
      if (key !== this.#prefix + directory) return false;
    return true;
  }

  #fresh(directory: string): Listing | undefined {
    const listing = this.#listings.get(directory);
    return listing && listing.atMs > Date.now() - SEEN_MS ? listing : undefined;
  }

  /** Once for all who ask. Resolves undefined if it has more than one page, and only that much was wanted. */
  #load(directory: string, most: number): Promise<Listing | undefined> {
    const id = `${most}:${directory}`;
    const coming = this.#coming.get(id) ?? this.#ask(directory, most).finally(() => this.#coming.delete(id));
    this.#coming.set(id, coming);
    return coming;
  }

  async #ask(directory: string, most: number): Promise<Listing | undefined> {
    const start = this.#prefix + directory;
    const entries = new Map<string, Entry>();
    const atMs = Date.now();
    const signal = AbortSignal.timeout(most === ONE_PAGE ? CALL_MS : 10 * CALL_MS);
    for await (const object of this.#bucket.list(start, { delimiter: '/', signal })) {
      const below = object.key.slice(start.length);
      const isDirectory = below.endsWith('/');
      const name = ownText(isDirectory ? below.slice(0, -1) : below);
      // What can be no file is not shown.
      if (!isName(name)) continue;
      if (entries.size >= most) {
        if (most === MOST_ENTRIES) throw new FuseError(constants.errno.EOVERFLOW);
        this.#large.set(directory, Date.now());
        if (this.#large.size > MOST_LISTINGS) this.#large.delete(this.#large.keys().next().value!);
        return undefined;
      }
      // A directory hides an object of the same name.
      if (isDirectory) entries.set(name, { kind: 'directory' });
      else if (!entries.has(name)) entries.set(name, { kind: 'file', facts: factsOf(object) });
    }
    const listing = { atMs, entries };
    this.drop(directory);
    this.#listings.set(directory, listing);
    this.#count(entries.size);
    const isTooMuch = () =>
      this.#kept > MOST_KEPT || this.#listings.size > MOST_LISTINGS || this.#share.isCrowded;
    // Who has asked for this one gets it also if it is not kept.
    while (this.#listings.size > 0 && isTooMuch()) this.drop(this.#listings.keys().next().value!);
    return listing;
  }

  async #probe(key: string): Promise<Entry | undefined> {
    const signal = AbortSignal.timeout(CALL_MS);
    const below = async () => {
      for await (const _ of this.#bucket.list(`${this.#prefix}${key}/`, { delimiter: '/', signal }))
        return true;
      return false;
    };
    const [facts, isDirectory] = await Promise.all([this.look(key), below()]);
    if (isDirectory) return { kind: 'directory' };
    return facts && { kind: 'file', facts };
  }
}

export function factsOf({
  sizeBytes,
  etag,
  modifiedAtMs,
}: Pick<ObjectFacts, 'sizeBytes' | 'etag' | 'modifiedAtMs'>): ObjectFacts {
  return { sizeBytes, etag, modifiedAtMs, atMs: Date.now() };
}
