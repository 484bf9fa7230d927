/**
 * What has to be done to both sides of a sync, decided from what they have now and what they had in common.
 */
import { promisify } from 'node:util';
import { gunzip as gunzipWith, gzip as gzipWith } from 'node:zlib';
import { CayError, type BucketSync, type FileInfo } from '@cay/sdk/protocol';
import { parsePieces } from '../../lib/parse-json.ts';
import { nextSlice } from '../../lib/slices.ts';
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
  const decide = (path: string, planned: string[]) => {
    // What is gone on the other side was changed there.
    const changedThere = to.changed(path);
    if (!changedThere || wins) planned.push(path);
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

const gzip = promisify(gzipWith);
const gunzip = promisify(gunzipWith);
const ROWS_IN_A_TURN = 1000;

/** JSON, compressed. There may be very many files, so that it is made in turns. */
export async function packBase(base: Base, owner: string): Promise<string> {
  const pieces: string[] = [];
  let rows: unknown[] = [];
  const flush = () => {
    const text = JSON.stringify(rows).slice(1, -1);
    if (text !== '') pieces.push(text);
    rows = [];
  };
  for (const [path, { etag, sizeBytes, modifiedAtMs }] of base) {
    rows.push([path, etag, sizeBytes, modifiedAtMs]);
    if (rows.length < ROWS_IN_A_TURN) continue;
    flush();
    await nextSlice(owner);
  }
  flush();
  return (await gzip(`[${pieces.join(',')}]`, { level: 1 })).toString('base64');
}

export async function unpackBase(packed: string | null, owner: string): Promise<Base> {
  const base: Base = new Map();
  if (packed === null) return base;
  const parsing = parsePieces(await gunzip(Buffer.from(packed, 'base64')));
  let next = parsing.next();
  for (; !next.done; next = parsing.next()) await nextSlice(owner);
  for (const [path, etag, sizeBytes, modifiedAtMs] of next.value as [string, string, number, number][])
    base.set(path, { etag, sizeBytes, modifiedAtMs });
  return base;
}
