/**
 * Contents that are being written. Each is a file on the server's disk until nobody has it open and the
 * bucket has it too. The next server finds the files, and the journal says which of them the bucket lacks.
 */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { isCayError } from '@cay/sdk/protocol';
import { KeyedQueue } from '../lib/keyed-queue.ts';
import type { Bucket } from '../s3/bucket.ts';
import { expectedEtag } from '../s3/expected-etag.ts';
import { FuseError } from './fuse/fuse-error.ts';
import type { Node, Nodes, ObjectFacts } from './nodes.ts';
import { SpoolRoom, type ProjectSpace } from './spool-room.ts';
import { uploadSpool } from './upload-spool.ts';

export interface Spool {
  readonly node: Node;
  readonly file: FileHandle;
  size: number;
  dirty: boolean;
  /** The object that it began with. */
  base: ObjectFacts | undefined;
  /** No object may be there when it is written the first time. */
  isNew: boolean;
  /** The bucket may have got this content, and the answer was lost. */
  isUnsure: boolean;
  /** ETags of earlier contents of which that is so. */
  tried: readonly string[];
  modifiedAtMs: number;
  /** An earlier server has left it, and who has it open is not known. */
  wasFound: boolean;
  /** Why the bucket has not got it. */
  failure: unknown;
}

/** Called with what the bucket does not get: `lost` for ever, or until the next attempt. */
export type OnFailed = (key: string, error: unknown, lost: boolean) => void;

const FETCH_MS = 2 * 3600_000;
const PIECE = 1024 * 1024;
/** Attempts whose outcome nobody knows, with another content each. */
const MOST_TRIED = 16;

export interface SpoolsOptions {
  dir: string;
  nodes: Nodes;
  bucket: Bucket;
  prefix: string;
  /** What all contents of a mount take. */
  mostBytes: number;
  /** What stays free on the disk. */
  leastFree?: number;
  mostContents?: number;
  space?: ProjectSpace | undefined;
  onFailed: OnFailed;
  onWritten(node: Node, facts: ObjectFacts): void;
}

export class Spools {
  readonly #options: SpoolsOptions;
  readonly #spools = new Map<Node, Spool>();
  readonly #queue = new KeyedQueue<number>();
  readonly #room: SpoolRoom;
  readonly #closing = new AbortController();

  constructor(options: SpoolsOptions) {
    const { dir, leastFree, mostBytes, mostContents, nodes, space } = options;
    this.#options = options;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#room = new SpoolRoom({
      dir,
      mostBytes,
      project: space,
      ...(leastFree !== undefined && { leastFree }),
      ...(mostContents !== undefined && { mostContents }),
    });
    nodes.contents = () => this.#spools;
    nodes.hasContent = (node) => this.#spools.has(node);
  }

  /** What all of them take. */
  get bytes(): number {
    return this.#room.bytes;
  }

  get(node: Node): Spool | undefined {
    return this.#spools.get(node);
  }

  all(): Spool[] {
    return [...this.#spools.values()];
  }

  /** Those that the bucket lacks. */
  left(): Spool[] {
    return this.all().filter(({ dirty, node }) => dirty && !node.unlinked);
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
      const dirty = found.dirty && !node.unlinked;
      const spool = { node, file, size, ...found, dirty, modifiedAtMs: Math.floor(mtimeMs) };
      this.#spools.set(node, {
        ...spool,
        // The earlier server may have been killed while it wrote it.
        isUnsure: dirty,
        wasFound: true,
        failure: undefined,
      });
      this.#room.count(size);
      this.#room.countContents(1);
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
    // What is replaced as a whole need not be what it was.
    this.#room.enter();
    let file: FileHandle;
    try {
      file = await open(this.#path(node), 'w+', 0o600);
    } catch (error) {
      this.#room.countContents(-1);
      throw error;
    }
    return this.#add(node, file, {
      size: 0,
      dirty: true,
      base: undefined,
      isNew,
      modifiedAtMs: Date.now(),
    });
  }

  /** The content to change a part of it: fetched from the bucket, if it is not here yet. */
  async ensure(node: Node, key: string, facts: ObjectFacts | undefined): Promise<Spool> {
    const known = this.#spools.get(node);
    if (known) return known;
    if (!facts) throw new FuseError(constants.errno.ESTALE);
    const { sizeBytes: size, modifiedAtMs } = facts;
    this.#room.enter();
    try {
      await this.#room.take(size);
    } catch (error) {
      this.#room.countContents(-1);
      throw error;
    }
    const part = `${this.#path(node)}.part`;
    let file: FileHandle | undefined;
    try {
      file = await open(part, 'w+', 0o600);
      await this.#fetch(file, key, facts);
      await rename(part, this.#path(node));
    } catch (error) {
      await file?.close();
      await rm(part, { force: true });
      this.#room.give(size);
      this.#room.countContents(-1);
      throw error;
    }
    return this.#add(node, file, { size, dirty: false, base: facts, isNew: false, modifiedAtMs });
  }

  async #fetch(file: FileHandle, key: string, facts: ObjectFacts): Promise<void> {
    const { bucket, prefix } = this.#options;
    const object = { ...facts, key: prefix + key };
    let at = 0;
    for await (const chunk of bucket.get(object.key, { object, signal: AbortSignal.timeout(FETCH_MS) })) {
      await writeWhole(file, chunk, at);
      at += chunk.length;
    }
  }

  /** Its file is there, and its size is taken. Takes both back if the next server would not know of it. */
  async #add(
    node: Node,
    file: FileHandle,
    content: Pick<Spool, 'size' | 'dirty' | 'base' | 'isNew' | 'modifiedAtMs'>,
  ): Promise<Spool> {
    const spool: Spool = {
      node,
      file,
      ...content,
      isUnsure: false,
      tried: [],
      wasFound: false,
      failure: undefined,
    };
    try {
      this.#options.nodes.note(node, spool);
    } catch (error) {
      this.#room.give(spool.size);
      this.#room.countContents(-1);
      await file.close();
      await rm(this.#path(node), { force: true });
      throw error;
    }
    this.#spools.set(node, spool);
    return spool;
  }

  async write(spool: Spool, data: Buffer, offset: number): Promise<void> {
    if (data.length === 0) return;
    const end = offset + data.length;
    const more = Math.max(0, end - spool.size);
    await this.#room.take(more);
    try {
      await this.#soil(spool);
      await writeWhole(spool.file, data, offset);
      spool.size += more;
    } catch (error) {
      this.#room.give(more);
      // What is behind its end came from a call that has failed. Zeros behind it are read as nothing.
      if (more > 0) await spool.file.truncate(spool.size).catch(() => {});
      throw error;
    }
  }

  async truncate(spool: Spool, size: number): Promise<void> {
    const more = size - spool.size;
    if (more > 0) await this.#room.take(more);
    try {
      await this.#soil(spool);
      await spool.file.truncate(size);
      spool.size = size;
    } catch (error) {
      if (more > 0) this.#room.give(more);
      throw error;
    }
    if (more < 0) this.#room.give(-more);
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
    const { node } = spool;
    if (!spool.dirty || node.unlinked) return;
    const { bucket, nodes, prefix, onWritten } = this.#options;
    const { signal } = this.#closing;
    try {
      const key = prefix + nodes.keyOf(node);
      const content = () => this.#content(spool);
      const { facts, modifiedAtMs } = await uploadSpool(bucket, key, spool, { content, signal });
      const clean = { dirty: false, isNew: false, isUnsure: false, tried: [], failure: undefined };
      Object.assign(spool, { ...clean, base: facts, modifiedAtMs });
      nodes.note(node, spool);
      onWritten(node, facts);
    } catch (error) {
      spool.failure = error;
      if (!isHopeless(error)) spool.isUnsure = true;
      throw error;
    }
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
    const { node } = spool;
    if (!this.#spools.delete(node)) return;
    this.#room.give(spool.size);
    this.#room.countContents(-1);
    await spool.file.close();
    await rm(this.#path(node), { force: true });
    this.#options.nodes.release(node);
  }

  /** The journal says so before the content changes. */
  async #soil(spool: Spool): Promise<void> {
    const { node, dirty, isUnsure } = spool;
    if (isUnsure) {
      // What the bucket may have got is not what it will get. It is ours all the same.
      const tried = [...spool.tried, await expectedEtag(this.#content(spool), spool.size)].slice(-MOST_TRIED);
      this.#options.nodes.note(node, { ...spool, dirty: true, tried });
      Object.assign(spool, { dirty: true, isUnsure: false, tried });
    } else if (!dirty) {
      this.#options.nodes.note(node, { ...spool, dirty: true });
      spool.dirty = true;
    }
    spool.modifiedAtMs = Date.now();
  }

  async *#content(spool: Spool): AsyncGenerator<Buffer, void> {
    for (let at = 0; at < spool.size; at += PIECE) yield await this.read(spool, at, PIECE);
  }

  #path({ id }: Node): string {
    return join(this.#options.dir, String(id));
  }

  /** Leaves the files to the next server. */
  async close(): Promise<void> {
    this.#closing.abort();
    const open = this.all();
    this.#spools.clear();
    this.#room.give(this.#room.bytes);
    this.#room.countContents(-this.#room.contents);
    for (const { file } of open) await file.close();
  }
}

async function writeWhole(file: FileHandle, data: Uint8Array, position: number): Promise<void> {
  for (let at = 0; at < data.length;) {
    const { bytesWritten } = await file.write(data, at, data.length - at, position + at);
    at += bytesWritten;
  }
}

/** Another attempt will not succeed either: somebody else has written the object, or it cannot be one. */
export function isHopeless(error: unknown): boolean {
  return (['conflict', 'already_exists', 'invalid_argument', 'unsupported'] as const).some((code) =>
    isCayError(error, code),
  );
}
