import { mkdir } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const reason = whyNoLocal();
const STRAY = `i-${'0'.repeat(20)}`;

describe.skipIf(reason !== undefined)(
  `a sweep while no server runs${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    it('lists what was left behind and touches nothing, then takes it away, and leaves sandboxes as they are', async () => {
      await using cay = await openCay({ CAY_RUNTIME: 'runc' });
      expect(await cay.json('doctor', '--sweep', '--dry-run')).toEqual({ dryRun: true, orphans: [] });
      await cay.run('create', '--name', 'box');
      await cay.run('exec', 'box', '--', 'sh', '-c', 'echo kept > note');
      expect((await cay.run('down')).code).toBe(0);
      // What a operation that was killed would have left.
      const stray = join(cay.dataDir, 'engine', 'instances', STRAY);
      await mkdir(stray);

      const looked = await cay.json<{ orphans: { kind: string; name: string }[] }>(
        'doctor',
        '--sweep',
        '--dry-run',
      );
      expect(looked.orphans).toContainEqual({ kind: 'instance', name: STRAY });
      expect(existsSync(stray)).toBe(true);
      expect(await cay.json('doctor', '--sweep', '--dry-run')).toEqual({
        dryRun: true,
        orphans: looked.orphans,
      });
      expect(await cay.json('doctor', '--sweep')).toMatchObject({
        orphans: expect.arrayContaining(looked.orphans) as unknown,
      });
      expect(existsSync(stray)).toBe(false);

      expect((await cay.run('up', '--detach')).code).toBe(0);
      expect((await cay.run('exec', 'box', '--', 'cat', 'note')).stdout).toBe('kept\n');
      // With a server it is the server that looks.
      expect(await cay.json('doctor', '--sweep', '--dry-run')).toEqual({ dryRun: true, orphans: [] });
    }, 120_000);
  },
);
