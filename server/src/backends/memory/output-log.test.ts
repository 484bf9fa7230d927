import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { outputLog } from './output-log.ts';

async function readAll(log: ReturnType<typeof outputLog>, offset: number) {
  const reader = log.read(offset);
  const bytes: number[] = [];
  let missing = 0;
  for (let piece = await reader.next(); piece; piece = await reader.next()) {
    expect(piece.offset).toBe(offset + missing + bytes.length);
    if (piece.channel === 'gap') missing += piece.bytes;
    else bytes.push(...piece.data);
  }
  return { bytes: Buffer.from(bytes), missing };
}

describe('outputLog()', () => {
  it('with "drop" gives the end of what was written, and counts what is missing', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 30 }),
        fc.integer({ min: 1, max: 1000 }),
        fc.nat(2000),
        async (writes, keep, from) => {
          const log = outputLog(keep, 'drop');
          for (const data of writes) await log.write('stdout', data);
          log.complete();
          const all = Buffer.concat(writes);
          const offset = Math.min(from, all.length);
          const { bytes, missing } = await readAll(log, offset);
          expect(log.outputBytes).toBe(all.length);
          expect(log.outputBytes - log.keptFrom).toBeLessThanOrEqual(keep);
          expect(missing).toBe(Math.max(0, log.keptFrom - offset));
          expect(bytes.equals(all.subarray(offset + missing))).toBe(true);
        },
      ),
    );
  });

  it('with "wait" loses nothing, however small it is', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 30 }),
        fc.integer({ min: 1, max: 200 }),
        async (writes, keep) => {
          const log = outputLog(keep, 'wait');
          const writing = (async () => {
            for (const data of writes) await log.write('stdout', data);
            log.complete();
          })();
          const { bytes, missing } = await readAll(log, 0);
          await writing;
          expect(missing).toBe(0);
          expect(bytes.equals(Buffer.concat(writes))).toBe(true);
        },
      ),
    );
  });
});
