import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { storeSuite } from '../../../test/conformance/store-suite.ts';
import { openDirectoryStore } from './directory.ts';

const dir = mkdtempSync(join(tmpdir(), 'cay-store-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

storeSuite('directory', { open: () => openDirectoryStore({ dir: join(dir, 'suite', 'deep') }) });

describe('directory store', () => {
  it('sweeps what a process that died had half written, and nothing else', async () => {
    const own = join(dir, 'swept');
    const program = `
      const { openDirectoryStore } = await import(${JSON.stringify(new URL('directory.ts', import.meta.url).href)});
      const store = await openDirectoryStore({ dir: ${JSON.stringify(own)} });
      await store.put('whole', (async function* () { yield Buffer.from('whole'); })());
      await store.put('half', (async function* () { yield Buffer.from('half'); process.kill(process.pid, 'SIGKILL'); await new Promise(() => setInterval(() => {}, 1000)); })());`;
    const { signal } = spawnSync(process.execPath, ['--input-type=module', '-e', program]);
    expect(signal).toBe('SIGKILL');
    expect(readdirSync(own)).toHaveLength(2);
    const store = await openDirectoryStore({ dir: own });
    expect(readdirSync(own)).toEqual(['whole']);
    expect(await store.list()).toEqual([{ name: 'whole', sizeBytes: 5 }]);
  });

  it('takes neither symlinks nor directories for objects', async () => {
    const own = join(dir, 'odd');
    const store = await openDirectoryStore({ dir: own });
    writeFileSync(join(dir, 'secret'), 'secret');
    symlinkSync(join(dir, 'secret'), join(own, 'link'));
    mkdirSync(join(own, 'folder'));
    expect(await store.list()).toEqual([]);
    expect(await store.stat('link')).toBeUndefined();
    await expect(Array.fromAsync(store.get('link'))).rejects.toMatchObject({ code: 'not_found' });
    await expect(Array.fromAsync(store.get('folder'))).rejects.toMatchObject({ code: 'not_found' });
  });
});
