import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { giveBack, lend } from '../../../lib/lent-memory.ts';
import { innerConnection } from './inner-connection.ts';

const BYTES = 20_000;

describe('a connection inside the process', () => {
  it('keeps lent bytes that its writer gives back before they are read', async () => {
    const [near, far] = innerConnection();
    const parts = Array.from({ length: 5 }, (_, index) =>
      Buffer.from(new ArrayBuffer(BYTES)).fill(index + 1),
    );
    let written = 0;
    for (const part of parts) {
      lend(part);
      far.write(part, () => {
        written++;
        giveBack(part);
      });
    }
    await sleep(10);
    expect(written).toBeGreaterThan(0);

    far.end();
    const got = Buffer.concat(await Array.fromAsync(near as AsyncIterable<Buffer>));
    expect(got.length).toBe(parts.length * BYTES);
    expect(parts.map((_, index) => got[index * BYTES + BYTES / 2])).toEqual([1, 2, 3, 4, 5]);
    expect(written).toBe(parts.length);
  });

  it('closes its other end', async () => {
    const [near, far] = innerConnection();
    const closed = new Promise((resolve) => near.once('close', resolve));
    far.destroy();
    await closed;
    expect(near.destroyed).toBe(true);
  });
});
