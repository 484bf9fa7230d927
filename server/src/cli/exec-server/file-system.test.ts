import type { Sandbox } from '@cay/sdk/client';
import { describe, expect, it } from 'vitest';
import { openFileSystem } from './file-system.ts';

/** A sandbox whose files are whatever code inside makes of them while they are read. */
function hostile(files: object): Sandbox {
  return { files } as unknown as Sandbox;
}

describe('files of a sandbox that lies', () => {
  it('are not read beyond the bound, whatever size they had', async () => {
    const asked: unknown[] = [];
    const calls = openFileSystem(
      hostile({
        stat: async () => ({ sizeBytes: 3, type: 'file' }),
        read: async (_path: string, options?: { length?: number }) => {
          asked.push(options?.length);
          return new Uint8Array(options?.length ?? 2 ** 30);
        },
      }),
    );
    await expect(calls['fs/readFile']!({ path: 'file:///x' })).rejects.toThrow('read it in blocks');
    expect(asked).toEqual([64 * 1024 * 1024 + 1]);
  });

  it('are not listed beyond the bound', async () => {
    const endless = async function* () {
      for (let at = 0; at < 60_000; at++) yield { name: `f${at}`, type: 'file' };
      throw new Error('more was read than is shown');
    };
    const calls = openFileSystem(hostile({ list: endless }));
    await expect(calls['fs/readDirectory']!({ path: 'file:///x' })).rejects.toThrow(
      'more than 50000 entries',
    );
  });
});
