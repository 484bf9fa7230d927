import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { guestBinary } from '../../guest/guest-binary.ts';
import { openBtrfs } from '../snapshots/btrfs.ts';
import { probeShift } from './probe-shift.ts';

describe.skipIf(process.getuid?.() !== 0)('probeShift()', () => {
  let dir: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'cay-shift-'));
  });
  afterEach(() => rmSync(dir, { recursive: true }));

  it('finds that trees of btrfs can be shown with other ids, and leaves nothing', async () => {
    const trees = await openBtrfs({ dir: join(dir, 'storage'), poolBytes: 1024 ** 3, tendEveryMs: 0 });
    try {
      expect(await probeShift(trees, join(dir, 'probe'), guestBinary())).toEqual({ works: true });
      expect(await trees.list()).toEqual([]);
      expect(existsSync(join(dir, 'probe'))).toBe(false);
    } finally {
      await trees.destroy();
    }
  });

  it('says why not where the filesystem has no such mounts', async () => {
    let removed = false;
    const trees = { prepare: async () => '/proc', remove: async () => void (removed = true) };
    const found = await probeShift(trees, join(dir, 'probe'), guestBinary());
    expect(found).toMatchObject({
      works: false,
      reason: expect.stringContaining('Cannot map the ids of the tree: Invalid argument'),
    });
    expect(removed).toBe(true);
  });
});
