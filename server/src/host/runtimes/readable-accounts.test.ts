import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { requireReadableAccounts } from './readable-accounts.ts';

describe('requireReadableAccounts()', () => {
  let root: string;
  const check = () => requireReadableAccounts(root);
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'cay-accounts-'));
    mkdirSync(join(root, 'etc'));
    mkdirSync(join(root, 'x'));
    execFileSync('mkfifo', [join(root, 'x/fifo')]);
  });
  afterEach(() => rmSync(root, { recursive: true }));

  it('takes files, links to them, and none', () => {
    expect(check).not.toThrow();
    writeFileSync(join(root, 'x/passwd'), '');
    symlinkSync('/x/passwd', join(root, 'etc/passwd'));
    symlinkSync('loop', join(root, 'etc/loop'));
    symlinkSync('loop', join(root, 'etc/group'));
    expect(check).not.toThrow();
  });

  it('refuses a fifo, by whatever way it is led to', () => {
    symlinkSync('../../../x/../x/fifo', join(root, 'etc/group'));
    expect(check).toThrow('/etc/group is a fifo');
  });
});
