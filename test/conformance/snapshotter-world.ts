import { execFile } from 'node:child_process';
import { lstat, mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type ErrorCode, isCayError } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import type { Snapshotter } from '../../server/src/host/snapshots/snapshotter.ts';

export interface SnapshotterHarness {
  open(options: {
    dir: string;
    /** Called before each step; never resolved, it stops the verb there as a crash would. */
    onStep?: (step: string) => Promise<void> | void;
  }): Promise<Snapshotter>;
  /** Takes the mounts away, as a restart of the machine does. */
  reboot(dir: string): Promise<void>;
  /** Opens one with room for 100 to 300 MiB. `end` takes away what was made for it beyond the trees. */
  openSmall(dir: string): Promise<{ trees: Trees; end(): Promise<void> }>;
  /** Every operation takes long, so fewer are done. */
  slow?: boolean;
  /** The reason why no extended attributes are kept. */
  noXattrs?: string;
}

export type Trees = Snapshotter;

/** What the tests of one driver share: two trees, "seed" and its commit "base", and whatever a test adds. */
export interface World {
  readonly harness: SnapshotterHarness;
  dir: string;
  trees: Trees;
}

export const exec = promisify(execFile);
export const MIB = 1024 ** 2;

export async function fill(path: string): Promise<void> {
  await writeFile(join(path, 'file'), 'content');
  await mkdir(join(path, 'folder'));
  await writeFile(join(path, 'folder', 'inner'), 'inner');
  await mkdir(join(path, 'renamed'));
  await writeFile(join(path, 'renamed', 'deep'), 'deep');
  await write(join(path, 'blob'), 2 * MIB);
}

/** Removes all trees but those, children first. */
export async function clear(trees: Snapshotter, keep: string[]): Promise<void> {
  for (;;) {
    const list = await trees.list();
    const parents = new Set(list.map(({ parent }) => parent));
    const leaves = list.filter(({ name }) => !keep.includes(name) && !parents.has(name));
    if (leaves.length === 0) return;
    for (const { name } of leaves) await trees.remove(name);
  }
}

export async function names(trees: Snapshotter): Promise<string[]> {
  return (await trees.list()).map(({ name }) => name);
}

/** Content that no filesystem can make smaller, written through to the disk, so that a quota has to speak. */
export async function write(path: string, bytes: number): Promise<void> {
  const file = await open(path, 'w');
  try {
    const chunk = Buffer.from(Array.from({ length: 65_536 }, (_, index) => (index * 2_654_435_761) >>> 24));
    for (let done = 0; done < bytes; done += chunk.length) await file.write(chunk);
    await file.sync();
  } finally {
    await file.close();
  }
}

export async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

export async function rejects(promise: Promise<unknown>, code: ErrorCode): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(isCayError(error) ? error.code : error).toBe(code);
}
