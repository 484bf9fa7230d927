import { describe, expect, it } from 'vitest';
import type { Control } from '../../control/control.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import { controlHost } from './control-host.ts';

describe('files over MCP', () => {
  const control = {
    files: async () => ({
      files: {
        read: async () => ({
          data: (async function* () {
            yield Buffer.from('text');
          })(),
        }),
      },
    }),
  } as unknown as Control;
  const read = (hold: (bytes: number) => boolean) =>
    controlHost(control, { project: 'p' } as Principal, hold).file('box', '/a', {
      most: 1024,
      signal: new AbortController().signal,
    });

  it('count for what a project may have collected, as all answers do', async () => {
    const held: number[] = [];
    const content = await read((bytes) => held.push(bytes) > 0);
    expect(Buffer.from(content).toString()).toBe('text');
    expect(held).toEqual([4096]);
    await expect(read(() => false)).rejects.toMatchObject({ code: 'resource_exhausted' });
  });
});
