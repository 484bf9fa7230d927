/**
 * Contents that are being written. Each is a file on the server's disk until nobody has it open and the bucket has it
 * too. The next server finds the files, and the journal says which of them the bucket lacks.
 */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { open, rename, rm, statfs, type FileHandle } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { isCayError } from '@cay/sdk/protocol';
import { KeyedQueue } from '../lib/keyed-queue.ts';
import type { Bucket, PutOptions } from '../s3/bucket.ts';
import { FuseError } from './fuse/fuse-error.ts';
import { factsOf } from './listings.ts';
import type { Line, Node, Nodes, ObjectFacts } from './nodes.ts';

export interface Spool {
  readonly node: Node;
  readonly file: FileHandle;
  size: number;
  dirty: boolean;
  /** The object that it began with. */
  base: ObjectFacts | undefined;
  /** No object may be there when it is written the first time. */
  isNew: boolean;
  modifiedAtMs: number;
  /** An earlier server has left it, and who has it open is not known. */
  wasFound: boolean;
  /** Why the bucket has not got it. */
  failure: unknown;
}

/** Called with what the bucket does not get: `lost` for ever, or until the next attempt. */
export type OnFailed = (key: string, error: unknown, lost: boolean) => void;

const LEAST_FREE = 512 * 1024 * 1024;
const CHECK_EVERY = 32 * 1024 * 1024;
const PIECE = 1024 * 1024;
const UPLOAD_MS = 2 * 3600_000;

export interface SpoolsOptions {
  dir: string;
  nodes: Nodes;
  bucket: Bucket;
  prefix: string;
  /** What all contents of a mount take. */
  mostBytes: number;
  onFailed: OnFailed;
  onWritten(node: Node, facts: ObjectFacts): void;
}

export class Spools {
  readonly #options: SpoolsOptions;
  readonly #spools = new Map<Node, Spool>();
  readonly #queue = new KeyedQueue<number>();
  #bytes = 0;
  #unchecked = CHECK_EVERY;
  #isFull = false;

  constructor(options: SpoolsOptions) {
    this.#options = options;
    mkdirSync(options.dir, { recursive: true, mode: 0o700 });
    options.nodes.onCompact = () => [...this.#spools.values()].map(lineOf);
  }

  get(node: Node): Spool | undefined {
    return this.#spools.get(node);
  }

  all(): Spool[] {
    return [...this.#spools.values()];
  }

  /** One change of a file after the other. */
  inOrder<T>(node: Node, task: () => Promise<T>): Promise<T> {
    return this.#queue.run(node.id, task);
  }

  /** Takes up what an earlier server has left. */
  async recover(): Promise<void> {
    const { dir, nodes } = this.#options;
    for (const name of readdirSync(dir)) {
      const found = nodes.found.get(Number(name));
      if (!found || !nodes.has(Number(name))) {
        rmSync(join(dir, name), { force: true });
        continue;
      }
      const node = nodes.find(Number(name));
      const file = await open(join(dir, name), 'r+');
      const { size, mtimeMs } = await file.stat();
      const base = found.base ?? undefined;
      const spool = { node, file, size, dirty: found.dirty && !node.unlinked, base, isNew: false };
      this.#spools.set(node, { ...spool, modifiedAtMs: mtimeMs, wasFound: true, failure: undefined });
      this.#bytes += size;
    }
    nodes.found.clear();
  }

  /** An empty content in place of what the object has. */
  async begin(node: Node, { isNew }: { isNew: boolean }): Promise<Spool> {
    const known = this.#spools.get(node);
    if (known) {
      await this.truncate(known, 0);
      return known;
    }
    const file = await open(this.#path(node), 'w+', 0o600);
    const spool: Spool = {
      node,
      file,
      size: 0,
      dirty: true,
      // What is replaced as a whole need not be what it was.
      base: undefined,
      isNew,
      modifiedAtMs: Date.now(),
      wasFound: false,
      failure: undefined,
    };
    this.#spools.set(node, spool);
    this.#note(spool);
    return spool;
  }

  /** The content to change a part of it: fetched from the bucket, if it is not here yet. */
  async ensure(node: Node, key: string, facts: ObjectFacts | undefined): Promise<Spool> {
    const known = this.#spools.get(node);
    if (known) return known;
    if (!facts) throw new FuseError(constants.errno.ESTALE);
    await this.#requireRoom(facts.sizeBytes);
    const { bucket, prefix } = this.#options;
    const part = `${this.#path(node)}.part`;
    const file = await open(part, 'w+', 0o600);
    try {
      const object = { ...facts, key: prefix + key };
      let at = 0;
      for await (const chunk of bucket.get(object.key, { object, signal: AbortSignal.timeout(UPLOAD_MS) })) {
        await file.write(chunk, 0, chunk.length, at);
        at += chunk.length;
      }
      await rename(part, this.#path(node));
    } catch (error) {
      await file.close();
      await rm(part, { force: true });
      throw error;
    }
    const spool: Spool = {
      node,
      file,
      size: facts.sizeBytes,
      dirty: false,
      base: facts,
      isNew: false,
      modifiedAtMs: facts.modifiedAtMs,
      wasFound: false,
      failure: undefined,
    };
    this.#bytes += spool.size;
    this.#spools.set(node, spool);
    this.#note(spool);
    return spool;
  }

  async write(spool: Spool, data: Buffer, offset: number): Promise<void> {
    const end = offset + data.length;
    if (end > spool.size) await this.#requireRoom(end - spool.size);
    this.#soil(spool);
    for (let at = 0; at < data.length;) {
      const { bytesWritten } = await spool.file.write(data, at, data.length - at, offset + at);
      at += bytesWritten;
    }
    this.#resize(spool, Math.max(spool.size, end));
  }

  async truncate(spool: Spool, size: number): Promise<void> {
    if (size > spool.size) await this.#requireRoom(size - spool.size);
    this.#soil(spool);
    await spool.file.truncate(size);
    this.#resize(spool, size);
  }

  async read(spool: Spool, from: number, length: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, spool.size - from)));
    let at = 0;
    while (at < bytes.length) {
      const { bytesRead } = await spool.file.read(bytes, at, bytes.length - at, from + at);
      if (bytesRead === 0) break;
      at += bytesRead;
    }
    return bytes.subarray(0, at);
  }

  /** Writes it to the bucket, if the bucket lacks it. Call it in the order of the node. */
  async upload(spool: Spool): Promise<void> {
    const { node, base, isNew, size } = spool;
    if (!spool.dirty || node.unlinked) return;
    const { bucket, nodes, prefix, onWritten } = this.#options;
    const key = nodes.keyOf(node);
    const condition: PutOptions = isNew
      ? { ifAbsent: true }
      : base && base.etag !== ''
        ? { ifMatch: base.etag }
        : {};
    try {
      const written = await bucket.put(prefix + key, this.#content(spool), {
        sizeBytes: size,
        signal: AbortSignal.timeout(UPLOAD_MS),
        ...condition,
      });
      spool.dirty = false;
      spool.isNew = false;
      spool.failure = undefined;
      spool.base = factsOf({ ...written, sizeBytes: size });
      spool.modifiedAtMs = written.modifiedAtMs;
      this.#note(spool);
      onWritten(node, spool.base);
    } catch (error) {
      spool.failure = error;
      throw error;
    }
  }

  async *#content(spool: Spool): AsyncGenerator<Buffer, void> {
    for (let at = 0; at < spool.size; at += PIECE) yield await this.read(spool, at, PIECE);
  }

  /** What nobody has open, and the bucket has or cannot get, is not kept. */
  async settle(node: Node): Promise<void> {
    const spool = this.#spools.get(node);
    if (!spool || (node.opens > 0 && !spool.wasFound)) return;
    if (spool.dirty && !node.unlinked) {
      if (!isHopeless(spool.failure)) return;
      this.#options.onFailed(this.#options.nodes.keyOf(node), spool.failure, true);
    }
    await this.drop(spool);
  }

  async drop(spool: Spool): Promise<void> {
    this.#spools.delete(spool.node);
    this.#bytes -= spool.size;
    await spool.file.close();
    await rm(this.#path(spool.node), { force: true });
  }

  /** The bytes of files that a sandbox has removed and keeps open count as well. */
  async #requireRoom(more: number): Promise<void> {
    const no = () => new FuseError(constants.errno.ENOSPC);
    if (this.#bytes + more > this.#options.mostBytes) throw no();
    this.#unchecked += more;
    if (this.#unchecked >= CHECK_EVERY) {
      const { bavail, bsize } = await statfs(this.#options.dir);
      this.#isFull = bavail * bsize < LEAST_FREE + more;
      this.#unchecked = this.#isFull ? CHECK_EVERY : 0;
    }
    if (this.#isFull) throw no();
  }

  #soil(spool: Spool): void {
    spool.modifiedAtMs = Date.now();
    if (spool.dirty) return;
    spool.dirty = true;
    this.#note(spool);
  }

  #resize(spool: Spool, size: number): void {
    this.#bytes += size - spool.size;
    spool.size = size;
  }

  #note(spool: Spool): void {
    this.#options.nodes.write(lineOf(spool));
  }

  #path({ id }: Node): string {
    return join(this.#options.dir, String(id));
  }

  async close(): Promise<void> {
    for (const { file } of this.#spools.values()) await file.close();
    this.#spools.clear();
  }
}

function lineOf({ node, dirty, base }: Spool): Line {
  return ['s', node.id, dirty ? 1 : 0, base ?? null];
}

/** Another attempt will not succeed either: somebody else has written the object, or it cannot be one. */
function isHopeless(error: unknown): boolean {
  return (['conflict', 'already_exists', 'invalid_argument', 'unsupported'] as const).some((code) =>
    isCayError(error, code),
  );
}
