import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { KEEP_GUEST_FAULTS, keepGuest, restoreKeptGuest, storeGuest } from './kept-guest.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'cay-guest-'));
});
afterEach(() => {
  armFaultPoints();
  rmSync(dir, { recursive: true, force: true });
});

function build(text: string): string {
  const path = join(dir, 'built');
  writeFileSync(path, text, { mode: 0o755 });
  return path;
}

const stored = () => join(dir, 'guests');

describe('storeGuest()', () => {
  it('copies the program, so that a build in its place changes nothing', async () => {
    const path = await storeGuest(stored(), build('one'));
    build('two');
    expect(readFileSync(path, 'utf8')).toBe('one');
    expect(statSync(path).mode & 0o777).toBe(0o755);
  });

  it('gives the same program the same path, and copies it once', async () => {
    const path = await storeGuest(stored(), build('one'));
    const { ino } = statSync(path);
    expect(await storeGuest(stored(), build('one'))).toBe(path);
    expect(statSync(path).ino).toBe(ino);
  });

  it('replaces a copy that was damaged', async () => {
    const path = await storeGuest(stored(), build('one'));
    writeFileSync(path, 'no');
    expect(readFileSync(await storeGuest(stored(), build('one')), 'utf8')).toBe('one');
  });

  it('removes an older program, which stays where it was kept', async () => {
    const older = await storeGuest(stored(), build('one'));
    const kept = join(dir, 'kept');
    await keepGuest(older, kept);
    const newer = await storeGuest(stored(), build('two'));
    expect(readdirSync(stored())).toEqual([basename(newer)]);
    expect(readFileSync(kept, 'utf8')).toBe('one');
    expect(statSync(kept).nlink).toBe(1);
  });

  it.each(KEEP_GUEST_FAULTS)('finds its way after a crash at %s', async (point) => {
    await storeGuest(stored(), build('one'));
    armFaultPoints({ [point]: 'error' });
    await expect(storeGuest(stored(), build('two'))).rejects.toThrow('on purpose');
    armFaultPoints();
    const path = await storeGuest(stored(), build('two'));
    expect(readFileSync(path, 'utf8')).toBe('two');
    expect(readdirSync(stored())).toEqual([basename(path)]);
  });
});

describe('keepGuest()', () => {
  it('takes no further space', async () => {
    const path = await storeGuest(stored(), build('one'));
    await keepGuest(path, join(dir, 'kept'));
    expect(statSync(join(dir, 'kept')).ino).toBe(statSync(path).ino);
  });

  const elsewhere = '/dev/shm';
  it.skipIf(!existsSync(elsewhere))('copies to another filesystem, with the same time', async () => {
    const path = await storeGuest(stored(), build('one'));
    const other = mkdtempSync(join(elsewhere, 'cay-guest-'));
    try {
      await keepGuest(path, join(other, 'kept'));
      expect(readFileSync(join(other, 'kept'), 'utf8')).toBe('one');
      expect(statSync(join(other, 'kept')).mtimeMs).toBe(statSync(path).mtimeMs);
    } finally {
      rmSync(other, { recursive: true });
    }
  });
});

describe('restoreKeptGuest()', () => {
  it('makes a copied program executable, with the same time', async () => {
    const path = await storeGuest(stored(), build('one'));
    writeFileSync(join(dir, 'guest'), 'one');
    chmodSync(join(dir, 'guest'), 0o600);
    await restoreKeptGuest(dir);
    expect(statSync(join(dir, 'guest'))).toMatchObject({ mode: 0o100755, mtimeMs: statSync(path).mtimeMs });
  });

  it('does nothing where there is none', async () => {
    await restoreKeptGuest(dir);
    expect(readdirSync(dir)).toEqual([]);
  });
});
