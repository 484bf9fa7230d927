/** What has to be done to both sides of a sync, decided from what they have now and what they had in common. */
import { CayError, type BucketSync, type FileInfo } from '@cay/sdk/protocol';
import { gunzipSync, gzipSync } from 'node:zlib';
import type { BucketObject } from '../../s3/bucket.ts';

/** One file that was the same on both sides. */
export interface Common {
  etag: string;
  sizeBytes: number;
  /** Of the file. */
  modifiedAtMs: number;
}
/** By path below the directory. */
export type Base = Map<string, Common>;
export type Objects = ReadonlyMap<string, BucketObject>;
export type LocalFiles = ReadonlyMap<string, Pick<FileInfo, 'sizeBytes' | 'modifiedAtMs'>>;

type Policy = Pick<BucketSync, 'onConflict' | 'deletions'>;

export interface Plan {
  /** Paths that are to be copied to the other side. */
  copy: string[];
  /** Paths that are to be removed from the other side. */
  remove: string[];
  /** Paths that changed on both sides, where no side wins. */
  conflicts: string[];
}

const SHOWN = 5;

/** What the bucket has that the sandbox does not. */
export function planDown(objects: Objects, files: LocalFiles, base: Base, policy: Policy): Plan {
  return plan(
    { now: objects.keys(), changed: (path) => objectChanged(objects.get(path), base.get(path)) },
    { has: (path) => files.has(path), changed: (path) => fileChanged(files.get(path), base.get(path)) },
    base,
    { ...policy, wins: policy.onConflict === 'bucket', loses: policy.onConflict === 'sandbox' },
  );
}

/** What the sandbox has that the bucket does not. */
export function planUp(objects: Objects, files: LocalFiles, base: Base, policy: Policy): Plan {
  return plan(
    { now: files.keys(), changed: (path) => fileChanged(files.get(path), base.get(path)) },
    { has: (path) => objects.has(path), changed: (path) => objectChanged(objects.get(path), base.get(path)) },
    base,
    { ...policy, wins: policy.onConflict === 'sandbox', loses: policy.onConflict === 'bucket' },
  );
}

interface Side {
  changed(path: string): boolean;
}

function plan(
  from: Side & { now: Iterable<string> },
  to: Side & { has(path: string): boolean },
  base: Base,
  { deletions, wins, loses }: Policy & { wins: boolean; loses: boolean },
): Plan {
  const copy: string[] = [];
  const remove: string[] = [];
  const conflicts: string[] = [];
  const decide = (path: string, deed: string[]) => {
    // What is gone on the other side was changed there.
    const changedThere = to.changed(path);
    if (!changedThere || wins) deed.push(path);
    else if (!loses) conflicts.push(path);
  };
  const now = new Set(from.now);
  for (const path of now) if (from.changed(path)) decide(path, copy);
  if (deletions) for (const path of base.keys()) if (!now.has(path) && to.has(path)) decide(path, remove);
  return { copy, remove, conflicts };
}

function objectChanged(object: BucketObject | undefined, known: Common | undefined): boolean {
  return object?.etag !== known?.etag;
}

function fileChanged(
  file: Pick<FileInfo, 'sizeBytes' | 'modifiedAtMs'> | undefined,
  known: Common | undefined,
) {
  return file?.sizeBytes !== known?.sizeBytes || file?.modifiedAtMs !== known?.modifiedAtMs;
}

export function conflictIn(paths: readonly string[]): CayError {
  const more = paths.length > SHOWN ? ` and ${paths.length - SHOWN} more` : '';
  return new CayError(
    'conflict',
    `Changed in the sandbox and in the bucket: ${paths.slice(0, SHOWN).join(', ')}${more}`,
    {
      details: { paths: paths.slice(0, 100) },
      hint: 'settle it on one side, or say with "onConflict" which side wins',
    },
  );
}

export function packBase(base: Base): string {
  const rows = [...base].map(([path, { etag, sizeBytes, modifiedAtMs }]) => [
    path,
    etag,
    sizeBytes,
    modifiedAtMs,
  ]);
  return gzipSync(JSON.stringify(rows), { level: 1 }).toString('base64');
}

export function unpackBase(packed: string | null): Base {
  if (packed === null) return new Map();
  const text = gunzipSync(Buffer.from(packed, 'base64')).toString();
  const rows = JSON.parse(text) as [string, string, number, number][];
  return new Map(
    rows.map(([path, etag, sizeBytes, modifiedAtMs]) => [path, { etag, sizeBytes, modifiedAtMs }]),
  );
}
