/**
 * Snapshots on the disk of the server, each as two files:
 *     <id>.tar.zst   its tree, compressed
 *     <id>.json      what it is, written last: a snapshot without it does not exist
 *
 * A tree is written under another name and synced first. What a killed server has left is removed when the
 * next one opens the directory. Trees come from guests and archives and are never unpacked here.
 */
import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { CayError, isId, SandboxIdSchema, type SnapshotId } from '@cay/sdk/protocol';
import { z } from 'zod';
import { compress, decompress } from '../../../host/archives/compression.ts';
import { syncDirectory, writeFileAtomic } from '../../../lib/atomic-file.ts';
import { isDiskFull } from '../../../lib/disk-full.ts';
import { faultPoint } from '../../../lib/fault-point.ts';
import { freeBytes } from '../../../lib/free-bytes.ts';
import type { SealedBox } from '../../../lib/sealed-box.ts';
import type { CallScope, SnapshotFacts } from '../../backend.ts';
import { requireWanted } from '../../support/check.ts';
import { openedSpec, sealedSpec } from '../../support/sealed-spec.ts';

export interface StoredSnapshot extends SnapshotFacts {
  /** The directories that a pod of its spec can write; the tree has their files. */
  directories: readonly string[];
}

export interface SnapshotStore {
  /** The id of this data directory. Objects that its server makes in the cluster are labelled with it. */
  maker(): Promise<string>;
  list(): Promise<StoredSnapshot[]>;
  find(snapshot: SnapshotId): Promise<StoredSnapshot | undefined>;
  /** Rejects `not_found`. */
  require(snapshot: SnapshotId): Promise<StoredSnapshot>;
  /** Keeps a tar archive, completely or not at all. `finish` may still reject when all of it was read. */
  keep(
    facts: Pick<StoredSnapshot, 'id' | 'sandbox' | 'spec' | 'directories'>,
    tree: AsyncIterable<Uint8Array>,
    options?: CallScope & { finish?(): Promise<void> },
  ): Promise<StoredSnapshot>;
  /** The tree as a tar archive. */
  tree(snapshot: SnapshotId): AsyncIterable<Uint8Array>;
  /** The same as it is on the disk, compressed by zstd. */
  packed(snapshot: SnapshotId): AsyncIterable<Uint8Array>;
  remove(snapshot: SnapshotId): Promise<void>;
}

export const STORE_FAULTS = ['kubernetes.snapshot.written', 'kubernetes.snapshot.named'] as const;

const TREE = '.tar.zst';
const PART = '.part';
const FACTS = '.json';
const MAKER = 'maker';
const MiB = 1024 * 1024;
/** Bytes that are left free on the disk, which has the records too. */
const LEAST_FREE = 512 * MiB;
const CHECK_EVERY = 32 * MiB;

const FactsSchema = z.object({
  version: z.literal(1),
  sandbox: SandboxIdSchema,
  /** A spec as text, with its environment sealed. */
  spec: z.string(),
  directories: z.array(z.string()),
  fileBytes: z.int().min(0),
});

interface StoreOptions {
  dir: string;
  box: SealedBox | undefined;
  onError(error: unknown): void;
  /** Default 512 MiB. */
  leastFree?: number;
}

export function snapshotStore({ dir, box, onError, leastFree = LEAST_FREE }: StoreOptions): SnapshotStore {
  let opened: Promise<Map<SnapshotId, StoredSnapshot>> | undefined;
  let maker: Promise<string> | undefined;
  const all = () => (opened ??= load().catch(forget));
  const pathOf = (snapshot: SnapshotId, ending: string) => `${dir}/${snapshot}${ending}`;
  const contextOf = (snapshot: SnapshotId) => `kubernetes/${snapshot}`;

  function forget(error: unknown): never {
    opened = undefined;
    throw error;
  }

  async function load(): Promise<Map<SnapshotId, StoredSnapshot>> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const found = new Map<SnapshotId, StoredSnapshot>();
    const names = new Set(await readdir(dir));
    for (const name of names) {
      const id = name.split('.', 1)[0];
      if (!isId('snap', id)) continue;
      const whole = names.has(`${id}${FACTS}`) && names.has(`${id}${TREE}`);
      if (!whole || name.endsWith(PART) || name.endsWith('.tmp')) {
        await rm(`${dir}/${name}`, { force: true });
      } else if (name === `${id}${FACTS}`) {
        // A record that cannot be read stays in place: a server of another version may read it.
        const facts = await readFacts(id as SnapshotId).catch((error: unknown) => {
          onError(error);
          return undefined;
        });
        if (facts) found.set(id as SnapshotId, facts);
      }
    }
    return found;
  }

  async function readFacts(id: SnapshotId): Promise<StoredSnapshot> {
    const text = await readFile(pathOf(id, FACTS), 'utf8');
    try {
      const { sandbox, spec, directories, fileBytes } = FactsSchema.parse(JSON.parse(text));
      const opened = openedSpec(spec, box, contextOf(id));
      return { id, sandbox, spec: opened, memory: false, fileBytes, directories };
    } catch (cause) {
      throw new CayError('failed_precondition', `Cannot read snapshot "${id}"`, { cause });
    }
  }

  async function readMaker(): Promise<string> {
    await all();
    const path = `${dir}/${MAKER}`;
    const there = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '';
      throw error;
    });
    if (/^[0-9a-f]{16}$/.test(there)) return there;
    const made = randomBytes(8).toString('hex');
    await writeFileAtomic(path, made);
    return made;
  }

  async function require(snapshot: SnapshotId): Promise<StoredSnapshot> {
    const found = (await all()).get(snapshot);
    if (found) return found;
    throw new CayError('not_found', `Cannot find snapshot "${snapshot}"`, { details: { what: 'snapshot' } });
  }

  async function write(
    path: string,
    content: AsyncIterable<Uint8Array>,
    { signal, finish }: CallScope & { finish?(): Promise<void> },
  ): Promise<number> {
    const file = await open(path, 'w', 0o600);
    let bytes = 0;
    let unchecked = CHECK_EVERY;
    try {
      for await (const part of content) {
        requireWanted(signal);
        unchecked += part.length;
        if (unchecked >= CHECK_EVERY) {
          await requireFree();
          unchecked = 0;
        }
        await file.writeFile(part);
        bytes += part.length;
      }
      await finish?.();
      requireWanted(signal);
      await file.datasync();
    } finally {
      await file.close();
    }
    return bytes;
  }

  async function requireFree(): Promise<void> {
    if ((await freeBytes(dir)) >= leastFree) return;
    throw new CayError(
      'resource_exhausted',
      `Cannot keep the snapshot: the disk of the server's data has less than ${leastFree / MiB} MiB left`,
      { hint: 'remove snapshots, or have the operator give the data directory more room' },
    );
  }

  async function* packed(snapshot: SnapshotId): AsyncIterable<Uint8Array> {
    await require(snapshot);
    yield* createReadStream(pathOf(snapshot, TREE), { highWaterMark: 1024 * 1024 });
  }

  return {
    maker: () => (maker ??= readMaker()),
    list: async () => [...(await all()).values()],
    find: async (snapshot) => (await all()).get(snapshot),
    require,

    async keep({ id, sandbox, spec, directories }, tree, options = {}) {
      const known = await all();
      const part = pathOf(id, `${TREE}${PART}`);
      try {
        const fileBytes = await write(part, compress(tree, 'zstd'), options);
        await faultPoint('kubernetes.snapshot.written');
        await rename(part, pathOf(id, TREE));
        await faultPoint('kubernetes.snapshot.named');
        const facts: z.infer<typeof FactsSchema> = {
          version: 1,
          sandbox,
          spec: sealedSpec(spec, box, contextOf(id)),
          directories: [...directories],
          fileBytes,
        };
        await writeFileAtomic(pathOf(id, FACTS), `${JSON.stringify(facts)}\n`);
        const kept: StoredSnapshot = { id, sandbox, spec, memory: false, fileBytes, directories };
        known.set(id, kept);
        return kept;
      } catch (error) {
        for (const ending of [FACTS, TREE, `${TREE}${PART}`]) await rm(pathOf(id, ending), { force: true });
        if (!isDiskFull(error)) throw error;
        throw new CayError('resource_exhausted', `Cannot keep snapshot "${id}": the disk is full`, {
          cause: error,
        });
      }
    },

    async *tree(snapshot) {
      yield* decompress(packed(snapshot), 'zstd');
    },

    packed,

    async remove(snapshot) {
      const known = await all();
      await rm(pathOf(snapshot, FACTS), { force: true });
      known.delete(snapshot);
      await rm(pathOf(snapshot, TREE), { force: true });
      await syncDirectory(dir);
    },
  };
}
