import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { gather, inPieces } from '../../../../test/conformance/box.ts';
import { byteReader } from '../byte-reader.ts';
import { expandSparse } from './expand-sparse.ts';
import { rawEntries } from './raw-entries.ts';

async function filesIn(tar: AsyncIterable<Uint8Array>): Promise<Record<string, Buffer>> {
  const found: Record<string, Buffer> = {};
  for await (const { name, content } of rawEntries(byteReader(tar))) found[name] = await gather(content);
  return found;
}

it('makes files with holes files without, as the system packs them', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'cay-sparse-'));
  try {
    const end = Buffer.alloc(5000, 'end');
    writeFileSync(join(dir, 'holes'), 'start');
    truncateSync(join(dir, 'holes'), 1_000_000);
    writeFileSync(join(dir, 'holes'), end, { flag: 'a' });
    truncateSync(join(dir, 'holes'), 1_100_000);
    writeFileSync(join(dir, 'plain'), 'x');
    const args = ['--format=pax', '--sparse', '-C', dir, '-c', 'holes', 'plain'];
    const tar = execFileSync('tar', args, { maxBuffer: 1 << 24 });
    expect(tar.length).toBeLessThan(200_000);
    const expected = Buffer.alloc(1_100_000);
    expected.write('start');
    end.copy(expected, 1_000_000);
    const files = await filesIn(expandSparse(inPieces(tar, 777)));
    expect(Object.keys(files)).toEqual(['holes', 'plain']);
    expect(files['holes']!.equals(expected)).toBe(true);
    expect(files['plain']!.toString()).toBe('x');
    // A map that says something else ends it.
    const broken = Buffer.from(tar);
    const map = broken.indexOf('\n', broken.indexOf('GNUSparseFile') + 512);
    broken.fill('9', map - 1, map + 20);
    await expect(gather(expandSparse(inPieces(broken, 777)))).rejects.toThrow(/map|holes/);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
