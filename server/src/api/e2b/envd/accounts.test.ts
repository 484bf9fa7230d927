import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../../../test/support/kept-bytes.ts';
import type { EnteredSandbox } from '../../../control/sandboxes/sandbox.ts';
import type { Guest } from '../../../guest/guest.ts';
import { accountReader } from './accounts.ts';

function guestWith(passwd: string): Guest {
  const read = async (path: string) => ({
    data: (async function* () {
      if (path === '/etc/passwd') yield Buffer.from(passwd);
    })(),
  });
  return { files: () => ({ read }) } as unknown as Guest;
}

const row = (incarnation: number) => ({ id: 'sbx_a', incarnation }) as unknown as EnteredSandbox;

describe('accounts of a sandbox', () => {
  it('are those of its files, and root in any case', async () => {
    const read = accountReader(() => 0);
    const accounts = await read(
      guestWith('user:x:1000:1000::/home/user:/bin/sh\nodd\n#x:x:5:5::/:\n'),
      row(1),
    );
    expect(accounts.byName('user')).toMatchObject({ uid: 1000, home: '/home/user' });
    expect(accounts.byName('root')).toMatchObject({ uid: 0 });
    expect([accounts.userName(1000), accounts.userName(7), accounts.byName('x')]).toEqual([
      'user',
      '7',
      undefined,
    ]);
  });

  it('are not kept when their time is over, nor those that are too many', async () => {
    const passwd = Array.from({ length: 11_000 }, (_, at) => `u${at}:x:${at + 1}:1::/:`).join('\n');
    let nowMs = 0;
    const read = accountReader(() => nowMs);
    const guest = guestWith(passwd);
    await read(guest, row(0));
    const TURNS = 20;
    const kept = await keptBytes(async () => {
      for (let turn = 1; turn <= TURNS; turn++) {
        nowMs += 3_000;
        const accounts = await read(guest, row(turn));
        expect(accounts.userName(1)).toBe('u0');
      }
    });
    // Each had taken three megabytes, of starts that are long over.
    expect(kept).toBeLessThan(10_000_000);
  });
});
