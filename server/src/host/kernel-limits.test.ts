import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { lowKernelLimits, raiseKernelLimits } from './kernel-limits.ts';

describe('raiseKernelLimits()', () => {
  let root: string;
  const instances = () => join(root, 'fs/inotify/max_user_instances');
  const watches = () => join(root, 'fs/inotify/max_user_watches');
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'cay-sysctl-'));
    mkdirSync(join(root, 'fs/inotify'), { recursive: true });
    writeFileSync(instances(), '128\n');
    writeFileSync(watches(), '2147483647\n');
  });
  afterEach(() => rmSync(root, { recursive: true }));

  it('raises low limits, lowers none and skips those that this kernel does not have', () => {
    expect(lowKernelLimits(root)).toMatchObject([{ name: 'fs.inotify.max_user_instances', value: 128 }]);
    raiseKernelLimits(root);
    expect(lowKernelLimits(root)).toEqual([]);
    expect(Number(readFileSync(instances(), 'utf8'))).toBeGreaterThan(1_000_000);
    expect(readFileSync(watches(), 'utf8')).toBe('2147483647\n');
  });
});
