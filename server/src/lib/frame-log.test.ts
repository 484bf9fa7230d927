import { mkdtemp, readdir, rm, stat, truncate, writeFile, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { extentOf, offsetSince, openFrameLog, readFrames, removeLog, type Frame } from './frame-log.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'frame-log-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const read = (name: string, offset: number, end: number) =>
  Array.fromAsync(readFrames(directory, name, offset, end));

/** The bytes of frames with -1 where they are missing, and the kind of each. */
function spread(frames: Frame[]): { byte: number; kind: number }[] {
  return frames.flatMap(({ kind, data, missing }) => [
    ...Array.from(data, (byte) => ({ byte, kind })),
    ...Array.from({ length: missing }, () => ({ byte: -1, kind: 0 })),
  ]);
}

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.integer({ min: 1, max: 3 }),
      data: fc.uint8Array({ minLength: 1, maxLength: 40 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ gap: fc.integer({ min: 1, max: 50 }) }) },
  { weight: 1, arbitrary: fc.constant({ reopen: true as const }) },
  { weight: 1, arbitrary: fc.record({ torn: fc.uint8Array({ minLength: 1, maxLength: 60 }) }) },
);

describe('a log of frames', () => {
  it('finds the first kept byte that was written at or after a time', async () => {
    let run = 0;
    const timed = fc.record({ step, at: fc.nat(30) });
    await fc.assert(
      fc.asyncProperty(fc.array(timed, { maxLength: 30 }), fc.nat(32), async (steps, since) => {
        const name = `timed.${run++}`;
        const options = { directory, name, segmentBytes: 150, segments: 3 };
        let log = await openFrameLog(options);
        const frames: { offset: number; at: number }[] = [];
        for (const { step: one, at } of steps) {
          const offset = log.end;
          if ('data' in one) await log.append(one.kind, one.data, at);
          else if ('gap' in one) await log.skip(one.gap, at);
          else {
            await log.close();
            if ('torn' in one) await tear(name, one.torn);
            log = await openFrameLog(options);
          }
          if (log.end > offset) frames.push({ offset, at });
        }
        const expected =
          frames.find(({ offset, at }) => offset >= log.keptFrom && at >= since)?.offset ?? log.end;
        expect(await offsetSince(directory, name, since, log.end)).toBe(expected);
        expect((await read(name, log.keptFrom, log.end)).map(({ atMs }) => atMs)).toEqual(
          frames.filter(({ offset }) => offset >= log.keptFrom).map(({ at }) => at),
        );
        await log.close();
        await removeLog(directory, name);
      }),
      { numRuns: 60 },
    );
  });

  it('knows no time of what was written without one', async () => {
    const log = await openFrameLog({ directory, name: 'untimed' });
    await log.append(1, Buffer.from('old'));
    await log.append(1, Buffer.from('new'), 5);
    expect(await offsetSince(directory, 'untimed', 0, log.end)).toBe(3);
    expect(await offsetSince(directory, 'untimed', 6, log.end)).toBe(6);
    await log.close();
  });

  it('gives from any offset what was written and is kept, each byte once', async () => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), fc.nat(), async (steps, seed) => {
        const name = `log.${run++}`;
        const options = { directory, name, segmentBytes: 150, segments: 3 };
        let log = await openFrameLog(options);
        const all: { byte: number; kind: number }[] = [];
        for (const one of steps) {
          if ('data' in one) {
            await log.append(one.kind, one.data);
            all.push(...Array.from(one.data, (byte) => ({ byte, kind: one.kind })));
          } else if ('gap' in one) {
            await log.skip(one.gap);
            all.push(...Array.from({ length: one.gap }, () => ({ byte: -1, kind: 0 })));
          } else {
            await log.close();
            // What a crash in the middle of a write leaves.
            if ('torn' in one) await tear(name, one.torn);
            log = await openFrameLog(options);
          }
          expect(log.end).toBe(all.length);
        }
        const offset = all.length === 0 ? 0 : seed % (all.length + 1);
        const got = spread(await read(name, offset, log.end));
        const expected = all
          .slice(offset)
          .map((byte, index) => (offset + index < log.keptFrom ? { byte: -1, kind: 0 } : byte));
        expect(got).toEqual(expected);
        await log.close();
        expect(await extentOf(directory, name)).toEqual({ keptFrom: log.keptFrom, end: all.length });
        await removeLog(directory, name);
        expect((await readdir(directory)).filter((file) => file.startsWith(`${name}.`))).toEqual([]);
      }),
      { numRuns: 60 },
    );
  });

  it('keeps the newest, within its bounds', async () => {
    const log = await openFrameLog({ directory, name: 'big', segmentBytes: 10_000, segments: 4 });
    for (let i = 0; i < 200; i++) await log.append(1, Buffer.alloc(1000, i));
    const sizes = await Promise.all(
      (await readdir(directory)).map(async (file) => (await stat(join(directory, file))).size),
    );
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(50_000);
    const frames = await read('big', 0, log.end);
    expect(frames[0]).toMatchObject({ kind: 0, offset: 0, missing: log.keptFrom });
    expect(frames.at(-1)).toMatchObject({ kind: 1, offset: 199_000 });
    await log.close();
  });

  it('truncates a damaged end', async () => {
    const log = await openFrameLog({ directory, name: 'cut' });
    await log.append(1, Buffer.from('whole'));
    await log.append(2, Buffer.from('damaged'));
    await log.close();
    const path = join(directory, 'cut.0.log');
    const content = await readFile(path);
    content[content.length - 1]! ^= 1;
    await writeFile(path, content);
    const again = await openFrameLog({ directory, name: 'cut' });
    expect(again.end).toBe(5);
    await again.close();
    await truncate(path, 10);
    expect(await extentOf(directory, 'cut')).toEqual({ keptFrom: 0, end: 0 });
  });
});

async function tear(name: string, bytes: Uint8Array): Promise<void> {
  const files = (await readdir(directory)).filter((file) => file.startsWith(`${name}.`));
  const last = files
    .toSorted((one, other) => Number(one.split('.').at(-2)) - Number(other.split('.').at(-2)))
    .at(-1)!;
  await writeFile(join(directory, last), bytes, { flag: 'a' });
}
