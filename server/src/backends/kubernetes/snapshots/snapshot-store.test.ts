import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { gather, inPieces } from '../../../../../test/conformance/box.ts';
import { armFaultPoints } from '../../../lib/fault-point.ts';
import { sealedBox } from '../../../lib/sealed-box.ts';
import { tarEnd } from '../../../lib/tar/pack.ts';
import { snapshotStore, STORE_FAULTS } from './snapshot-store.ts';

const spec = SandboxSpecSchema.parse({ env: { TOKEN: 'secret-value' } });
const box = sealedBox(Buffer.alloc(32, 1));
const content = tarEnd();

describe('snapshotStore', () => {
  let dir: string;
  const errors: unknown[] = [];
  const open = () => snapshotStore({ dir, box, onError: (error) => errors.push(error) });
  const facts = () => ({ id: newId('snap'), sandbox: newId('sbx'), spec, directories: ['/tmp'] });
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'cay-store-'));
    errors.length = 0;
  });
  afterEach(async () => {
    armFaultPoints();
    await rm(dir, { recursive: true });
  });

  it('gives back what it was given, also after it was opened again, and removes it', async () => {
    const store = open();
    const { id, sandbox } = facts();
    const kept = await store.keep({ ...facts(), id, sandbox }, inPieces(content, 100));
    expect(kept).toMatchObject({ id, sandbox, spec, memory: false, directories: ['/tmp'] });
    const later = open();
    expect(await later.list()).toEqual([kept]);
    expect((await gather(later.tree(id))).equals(content)).toBe(true);
    expect((await gather(later.packed(id))).length).toBe(kept.fileBytes);
    expect(await readFile(`${dir}/${id}.json`, 'utf8')).not.toContain('secret-value');
    expect(await later.maker()).toBe(await open().maker());
    await later.remove(id);
    await later.remove(id);
    expect((await readdir(dir)).filter((name) => name !== 'maker')).toEqual([]);
    await expect(later.require(id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('leaves room on the disk that the records are on, and nothing of what had none', async () => {
    const store = snapshotStore({ dir, box, onError: (error) => errors.push(error), leastFree: 2 ** 60 });
    await expect(store.keep(facts(), inPieces(content, 100))).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    expect(await readdir(dir)).toEqual([]);
  });

  it('leaves nothing of what fails while it is written, or when it is checked', async () => {
    const store = open();
    async function* failing() {
      yield content;
      throw new Error('the line was cut');
    }
    await expect(store.keep(facts(), failing())).rejects.toThrow('the line was cut');
    const finish = () => Promise.reject(new Error('damaged'));
    await expect(store.keep(facts(), inPieces(content, 100), { finish })).rejects.toThrow('damaged');
    const signal = AbortSignal.abort();
    await expect(store.keep(facts(), inPieces(content, 100), { signal })).rejects.toMatchObject({
      code: 'cancelled',
    });
    expect(await readdir(dir)).toEqual([]);
    expect(await store.list()).toEqual([]);
  });

  it.each(STORE_FAULTS)('removes what a server that was killed at %s has left', async (fault) => {
    const { promise: reached, resolve } = Promise.withResolvers<void>();
    armFaultPoints({
      [fault]: () => {
        resolve();
        return new Promise(() => {});
      },
    });
    void open().keep(facts(), inPieces(content, 100));
    await reached;
    expect(await readdir(dir)).not.toEqual([]);
    expect(await open().list()).toEqual([]);
    expect(await readdir(dir)).toEqual([]);
  });

  it('leaves what it cannot read where it is, and says so', async () => {
    const { id } = await open().keep(facts(), inPieces(content, 100));
    const other = snapshotStore({
      dir,
      box: sealedBox(Buffer.alloc(32, 2)),
      onError: (error) => errors.push(error),
    });
    expect(await other.list()).toEqual([]);
    expect(errors).toMatchObject([{ code: 'failed_precondition' }]);
    expect((await open().require(id)).id).toBe(id);
    await writeFile(`${dir}/${id}.json`, 'no');
    expect(await open().list()).toEqual([]);
    expect(await readdir(dir)).toContain(`${id}.tar.zst`);
  });
});
