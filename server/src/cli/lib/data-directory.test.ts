import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeDataDirectory, removeData } from './data-directory.ts';

let scratch: string;
beforeEach(() => (scratch = mkdtempSync('/tmp/cay-data-')));
afterEach(() => rmSync(scratch, { recursive: true, force: true }));

describe('makeDataDirectory()', () => {
  it('makes it with its parents, and takes away what it made', () => {
    const path = join(scratch, 'a/b/c');
    const { fresh, undo } = makeDataDirectory(path);
    expect(fresh).toBe(true);
    expect(statSync(path).mode & 0o777).toBe(0o711);
    undo();
    expect(existsSync(join(scratch, 'a'))).toBe(false);
    expect(existsSync(scratch)).toBe(true);
    const again = makeDataDirectory(path);
    rmSync(path, { recursive: true });
    again.undo();
    expect(existsSync(join(scratch, 'a'))).toBe(false);
  });

  it('leaves one that was there, and what others put into its own', () => {
    mkdirSync(join(scratch, 'old'));
    const old = makeDataDirectory(join(scratch, 'old'));
    expect(old.fresh).toBe(false);
    old.undo();
    expect(existsSync(join(scratch, 'old'))).toBe(true);
    const { undo } = makeDataDirectory(join(scratch, 'new'));
    writeFileSync(join(scratch, 'new/file'), '');
    undo();
    expect(existsSync(join(scratch, 'new/file'))).toBe(true);
  });

  it.each(['/proc/nope', '/proc/nope/deeper', '/dev/null/x'])('refuses %s at once, in words', (path) => {
    expect(() => makeDataDirectory(path)).toThrow(/^Cannot (create|use) the data directory/);
    expect(() => makeDataDirectory(path)).not.toThrow(/E[A-Z]{3,}/);
  });
});

describe('removeData()', () => {
  it('removes what is ours, certificates included, and keeps what is not', async () => {
    const path = join(scratch, 'data');
    mkdirSync(join(path, 'certificates/sbx.localhost'), { recursive: true });
    writeFileSync(join(path, 'certificates/sbx.localhost/key.pem'), 'secret');
    writeFileSync(join(path, 'mine'), '');
    await removeData(path);
    expect(existsSync(join(path, 'certificates'))).toBe(false);
    expect(existsSync(join(path, 'mine'))).toBe(true);
    rmSync(join(path, 'mine'));
    await removeData(path);
    expect(existsSync(path)).toBe(false);
  });
});
