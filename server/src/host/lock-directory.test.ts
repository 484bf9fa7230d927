import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { lockDirectory } from './lock-directory.ts';

it('locks a directory once, and names the process that holds it', () => {
  const dir = mkdtempSync(join(tmpdir(), 'cay-lock-directory-'));
  try {
    const lock = lockDirectory(dir);
    expect(() => lockDirectory(dir)).toThrow(
      expect.objectContaining({ code: 'failed_precondition', details: { pid: process.pid } }),
    );
    lock.release();
    lockDirectory(dir).release();
  } finally {
    rmSync(dir, { recursive: true });
  }
});
