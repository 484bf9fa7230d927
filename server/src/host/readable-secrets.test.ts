import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readableSecrets } from './readable-secrets.ts';

describe('readableSecrets()', () => {
  let dir: string;
  const put = (name: string, content: string, mode = 0o644) =>
    writeFileSync(join(dir, name), content, { mode });
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'cay-secrets-'));
    mkdirSync(join(dir, 'app'));
  });
  afterEach(() => rmSync(dir, { recursive: true }));

  it('tells private keys and files of credentials that everybody may read, and nothing else', async () => {
    put('app/server.pem', '-----BEGIN PRIVATE KEY-----\n');
    put('app/closed.pem', '-----BEGIN PRIVATE KEY-----\n', 0o600);
    put('ca.pem', '-----BEGIN CERTIFICATE-----\n');
    put('app/.env', 'TOKEN=x');
    put('aws-credentials.json', '{}');
    put('credentials.py', 'class Credentials: pass');
    put('empty-credentials', '');
    symlinkSync(dir, join(dir, 'app/loop'));
    const names = ['app/.env', 'app/server.pem', 'aws-credentials.json'];
    expect(await readableSecrets({ directories: [dir, join(dir, 'absent')] })).toEqual({
      found: names.map((name) => join(dir, name)),
      complete: true,
    });
  });

  it('stops when there is too much to look at', async () => {
    for (let count = 0; count < 10; count += 1) put(`file-${count}`, '');
    expect(await readableSecrets({ directories: [dir], maxEntries: 5 })).toEqual({
      found: [],
      complete: false,
    });
  });
});
