/** The mounts that this server serves: their files, and what of them the bucket lacks. */
import { existsSync, readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { readJson } from '../lib/atomic-file.ts';
import { inBackground } from '../lib/in-background.ts';
import type { Bucket } from '../s3/bucket.ts';
import { BlockCache } from './block-cache.ts';
import { BucketFiles } from './bucket-files.ts';
import { BucketMountFactsSchema, type BucketOpening, type BucketSource } from './bucket-mounts.ts';

export interface Mount {
  files: BucketFiles;
  bucket: Bucket;
  connection: Socket | undefined;
  timer: NodeJS.Timeout;
}

export interface MountTable {
  readonly mounts: ReadonlyMap<string, Promise<Mount>>;
  /** The files of a mount, once for all who ask. */
  mountOf(id: string): Promise<Mount>;
  /** Gives the bucket what nobody has closed, or reports it. */
  finish(id: string, directory: string): Promise<void>;
  /** Lets go of it, and leaves its directory. */
  drop(id: string): Promise<void>;
}

const CACHE_BYTES = 128 * 1024 * 1024;
const LOADS = 32;
/** How long the last writes of a sandbox may take. */
const LAST_MS = 120_000;
const LEFT_EVERY_MS = 10_000;
const IDLE_MS = 5_000;

export function openMountTable({
  dir,
  opening,
  mostSpooled,
  onError,
  isClosed,
}: {
  dir: string;
  opening: BucketOpening;
  mostSpooled: number;
  onError(error: unknown): void;
  isClosed(): boolean;
}): MountTable {
  const cache = new BlockCache({ bytes: CACHE_BYTES, loads: LOADS });
  const mounts = new Map<string, Promise<Mount>>();

  function sourceOf(): BucketSource {
    if (opening.source) return opening.source;
    throw new CayError('unavailable', 'Buckets cannot be opened yet');
  }

  function mountOf(id: string): Promise<Mount> {
    const known = mounts.get(id);
    if (known) return known;
    const coming = openMount(id);
    mounts.set(id, coming);
    coming.catch(() => mounts.get(id) === coming && mounts.delete(id));
    return coming;
  }

  async function openMount(id: string): Promise<Mount> {
    const directory = join(dir, id);
    const facts = BucketMountFactsSchema.parse(await readJson(join(directory, 'mount.json')));
    const { bucket, readOnly } = await sourceOf().open(facts.sandbox, facts.bucket);
    const files = new BucketFiles({
      bucket,
      prefix: facts.prefix === undefined ? '' : `${facts.prefix}/`,
      readOnly: readOnly || facts.readOnly,
      owner: facts.owner,
      journal: join(directory, 'nodes'),
      spoolDir: join(directory, 'spool'),
      mostSpooled,
      cache,
      id,
      onFailed: (key, error, lost) => opening.source?.failed(facts, { key, error, lost }),
    });
    await files.spools.recover();
    const timer = setInterval(() => inBackground(files.writeLeft(IDLE_MS), onError), LEFT_EVERY_MS).unref();
    return { files, bucket, connection: undefined, timer };
  }

  async function finish(id: string, directory: string): Promise<void> {
    if (!hasContents(directory)) return;
    const mount = await mountOf(id);
    const { files } = mount;
    clearInterval(mount.timer);
    const until = Date.now() + LAST_MS;
    for (const spool of files.spools.all()) spool.node.opens = 0;
    for (;;) {
      await Promise.race([
        files.writeLeft(0),
        sleep(Math.max(0, until - Date.now()), undefined, { ref: false }),
      ]);
      const left = files.spools.all().filter(({ dirty, node }) => dirty && !node.unlinked);
      if (left.length === 0) break;
      if (Date.now() > until || isClosed() || left.every(({ failure }) => !isAway(failure))) {
        const facts = BucketMountFactsSchema.parse(await readJson(join(directory, 'mount.json')));
        for (const { node, failure: error } of left)
          opening.source?.failed(facts, { key: files.nodes.keyOf(node), error, lost: true });
        break;
      }
      await sleep(1000);
    }
  }

  async function drop(id: string): Promise<void> {
    const coming = mounts.get(id);
    mounts.delete(id);
    const mount = await coming?.catch(() => undefined);
    if (!mount) return;
    clearInterval(mount.timer);
    mount.connection?.destroy();
    await mount.files.spools.close();
    mount.files.nodes.close();
    mount.bucket.close();
    cache.dropOwner(id);
  }

  return { mounts, mountOf, finish, drop };
}

/** Whether there may be something that the bucket lacks. */
export function hasContents(directory: string): boolean {
  const spool = join(directory, 'spool');
  return existsSync(spool) && readdirSync(spool).length > 0;
}

function isAway(error: unknown): boolean {
  return error === undefined || isCayError(error, 'unavailable');
}
