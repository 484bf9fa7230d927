import { newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../../test/support/kept-bytes.ts';
import type { StartedEgress } from '../../egress/start-egress.ts';
import type { Guest } from '../../guest/guest.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { trustAuthority } from './trust-authority.ts';

describe('the files by which programs trust the server', () => {
  const written: string[] = [];
  const guest = {
    files: () => ({
      write: async (path: string) => void written.push(path),
      read: async () => ({ data: (async function* () {})() }),
      stat: async () => ({ type: 'file', sizeBytes: 0 }),
    }),
  } as unknown as Guest;
  const egress = { certificate: 'pem', sshHostKey: 'ssh-ed25519 AAAA' } as unknown as StartedEgress;
  const row = (id = newId('sbx'), incarnation = 1) =>
    ({ id, incarnation, startedAtMs: 1, network: { allow: [] } }) as unknown as SandboxRow;

  it('are put once for each start, and again when the hosts change', async () => {
    let targets: string[] = ['a.example'];
    const trust = trustAuthority({
      egress,
      networks: { environmentOf: () => ({}), sshTargetsOf: () => targets },
      onError() {},
    });
    const one = row();
    const environment = await trust(one, guest);
    expect(environment['GIT_SSH_COMMAND']).toContain('cay-known-hosts');
    const puts = () => written.filter((path) => path.includes('known-hosts')).length;
    expect(puts()).toBe(1);
    await trust(one, guest);
    expect(puts()).toBe(1);
    targets = ['a.example', 'b.example'];
    await trust(one, guest);
    expect(puts()).toBe(2);
    await trust(row(one.id, 2), guest);
    expect(puts()).toBe(3);
  });

  it('leave nothing large behind, however many hosts a policy names', async () => {
    const trust = trustAuthority({
      egress,
      networks: {
        environmentOf: () => ({}),
        sshTargetsOf: () => Array.from({ length: 10_000 }, (_, at) => `h${at}.example.org`),
      },
      onError() {},
    });
    await trust(row(), guest);
    const kept = await keptBytes(async () => {
      for (let turn = 0; turn < 20; turn++) await trust(row(), guest);
    });
    expect(kept / 20).toBeLessThan(50_000);
  });
});
