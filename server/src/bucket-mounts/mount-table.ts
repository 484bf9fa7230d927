/** The mounts that this server serves: their files, and what of them the bucket lacks. */
import { existsSync, readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isCayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { readJson, writeFileAtomic } from '../lib/atomic-file.ts';
import { inBackground } from '../lib/in-background.ts';
import type { Bucket } from '../s3/bucket.ts';
import { BlockCache } from './block-cache.ts';
import { BucketFiles } from './bucket-files.ts';
import {
  BucketMountFactsSchema,
  type BucketMountFacts,
  type BucketOpening,
  type Unwritten,
} from './bucket-mounts.ts';
import { openOrProbe } from './probe-bucket.ts';
import { ProjectShare } from './project-share.ts';
import { isHopeless } from './spools.ts';

export interface Mount {
  facts: BucketMountFacts;
  files: BucketFiles;
  bucket: Bucket;
  share: ProjectShare;
  connection: Socket | undefined;
  timer: NodeJS.Timeout;
}

export interface MountTable {
  readonly mounts: ReadonlyMap<string, Promise<Mount>>;
  /** The files of a mount, once for all who ask. `isNew`: it counts for the quota, which may refuse it. */
  mountOf(id: string, options?: { isNew?: boolean }): Promise<Mount>;
  /**
   * Gives the bucket what it lacks, and resolves what it still lacks after so long. What is under way by then
   * goes on.
   */
  write(id: string, patienceMs: number): Promise<Unwritten[]>;
  /** One attempt for each file, however long it takes. */
  tryOnce(id: string): Promise<Unwritten[]>;
  /** Lets go of it, and leaves its directory. */
  drop(id: string): Promise<void>;
  shareOf(project: string): ProjectShare | undefined;
}

const CACHE_BYTES = 128 * 1024 * 1024;
/** Of one project. */
const LOADS = 32;
const LEFT_EVERY_MS = 10_000;
const IDLE_MS = 5_000;
const TRY_AGAIN_MS = 1_000;

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
  const shares = new Map<string, ProjectShare>();

  function mountOf(id: string, { isNew = false }: { isNew?: boolean } = {}): Promise<Mount> {
    const known = mounts.get(id);
    if (known) return known;
    const coming = openMount(id, isNew);
    mounts.set(id, coming);
    coming.catch(() => mounts.get(id) === coming && mounts.delete(id));
    return coming;
  }

  async function openMount(id: string, isNew: boolean): Promise<Mount> {
    const directory = join(dir, id);
    const facts = await factsIn(directory);
    // Every user of the machine may use a mount of FUSE that the way leads to, and find it in `/proc/mounts`.
    await chmod(directory, 0o700);
    const { bucket, readOnly, bounds } = await openOrProbe(opening.source, facts);
    const { project } = bounds;
    const share = shares.get(project) ?? new ProjectShare();
    shares.set(project, share);
    share.bounds = bounds;
    const name = `${facts.sandbox} ${facts.path}`;
    try {
      share.hold(name, { isNew });
    } catch (error) {
      bucket.close();
      throw error;
    }
    let files: BucketFiles | undefined;
    try {
      if (facts.project === undefined) await writeFacts(directory, { ...facts, project });
      files = new BucketFiles({
        bucket,
        prefix: facts.prefix === undefined ? '' : `${facts.prefix}/`,
        readOnly: readOnly || facts.readOnly,
        owner: facts.owner,
        closesLate: facts.closesLate,
        journal: join(directory, 'nodes'),
        spoolDir: join(directory, 'spool'),
        mostSpooled,
        share,
        cache,
        id,
        project,
        onFailed: (key, error, lost) => opening.source?.failed({ ...facts, project }, { key, error, lost }),
      });
      await files.spools.recover();
    } catch (error) {
      await files?.close();
      bucket.close();
      leave(project, share, name);
      throw error;
    }
    const left = files;
    const timer = setInterval(() => inBackground(left.writeIdle(IDLE_MS), onError), LEFT_EVERY_MS).unref();
    return { facts: { ...facts, project }, files, bucket, share, connection: undefined, timer };
  }

  function leave(project: string, share: ProjectShare, name: string): void {
    share.release(name);
    if (share.mounts === 0) shares.delete(project);
  }

  async function write(id: string, patienceMs: number): Promise<Unwritten[]> {
    const mount = await mountOf(id);
    const until = Date.now() + patienceMs;
    for (;;) {
      await Promise.race([
        mount.files.writeLeft(0, { all: true }),
        sleep(Math.max(0, until - Date.now()), undefined, { ref: false }),
      ]);
      const isOver = Date.now() >= until || isClosed();
      const left = mount.files.spools.left();
      if (isOver || left.every(({ failure }) => isFinal(failure))) return unwrittenOf(mount);
      await sleep(TRY_AGAIN_MS);
    }
  }

  async function tryOnce(id: string): Promise<Unwritten[]> {
    const mount = await mountOf(id);
    await mount.files.writeLeft(0, { all: true });
    return unwrittenOf(mount);
  }

  async function drop(id: string): Promise<void> {
    const coming = mounts.get(id);
    mounts.delete(id);
    const mount = await coming?.catch(() => undefined);
    if (!mount) return;
    clearInterval(mount.timer);
    mount.connection?.destroy();
    await mount.files.close();
    mount.bucket.close();
    leave(mount.facts.project!, mount.share, `${mount.facts.sandbox} ${mount.facts.path}`);
    cache.dropMount(id);
  }

  return { mounts, mountOf, write, tryOnce, drop, shareOf: (project) => shares.get(project) };
}

export async function factsIn(directory: string): Promise<BucketMountFacts> {
  return BucketMountFactsSchema.parse(await readJson(join(directory, 'mount.json')));
}

export async function writeFacts(directory: string, facts: BucketMountFacts): Promise<void> {
  const text = JSON.stringify(facts);
  await writeFileAtomic(join(directory, 'mount.json'), text, { powerLoss: 'anything', mode: 0o600 });
}

/** Whether there may be something that the bucket lacks. */
export function hasContents(directory: string): boolean {
  const spool = join(directory, 'spool');
  return existsSync(spool) && readdirSync(spool).length > 0;
}

export function unwrittenOf({ facts, files }: Pick<Mount, 'facts' | 'files'>): Unwritten[] {
  const { bucket, path } = facts;
  return files.spools.left().map(({ node, size, failure }) => ({
    bucket,
    path,
    key: files.nodes.keyOf(node),
    sizeBytes: size,
    failure,
  }));
}

/** What another attempt will hardly change, such as a wrong key. */
function isFinal(error: unknown): boolean {
  return isHopeless(error) || isCayError(error, 'permission_denied') || isCayError(error, 'not_found');
}

export function messageOf(error: unknown): string {
  return (error instanceof Error ? systemReason(error) : 'it was not tried').slice(0, 1000);
}
