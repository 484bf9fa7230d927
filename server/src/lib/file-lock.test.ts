import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { lockFile, type FileLock } from './file-lock.ts';

let dir: string;
const held: FileLock[] = [];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'cay-file-lock-'));
});
afterEach(() => {
  for (const lock of held.splice(0)) lock.release();
  rmSync(dir, { recursive: true });
});

function take(note: Record<string, unknown>): FileLock {
  const taken = lockFile(join(dir, 'lock'), note);
  if (!('lock' in taken)) throw new Error('Somebody has it');
  held.push(taken.lock);
  return taken.lock;
}

describe('lockFile()', () => {
  it('gives the lock to one holder at a time and names the holder to the others', () => {
    const first = take({ pid: 1 });
    expect(lockFile(join(dir, 'lock'), { pid: 2 })).toEqual({ heldBy: { pid: 1 } });
    first.release();
    take({ pid: 2 });
    expect(lockFile(join(dir, 'lock'), { pid: 3 })).toEqual({ heldBy: { pid: 2 } });
  });

  it('leaves the lock of the next one alone when it is released again', () => {
    const first = take({ pid: 1 });
    first.release();
    take({ pid: 2 });
    first.release();
    expect(JSON.parse(readFileSync(join(dir, 'lock.json'), 'utf8'))).toEqual({ pid: 2 });
    expect(lockFile(join(dir, 'lock'), { pid: 3 })).toEqual({ heldBy: { pid: 2 } });
  });
});
