/** What has happened counts, also when the disk is too full to record it. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import type { LocalBackend } from './local.ts';
import { failingSave } from './testing/failing-save.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(
  `a full disk under the local backend${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let world: LocalWorld;
    let backend: LocalBackend;
    let full: boolean;
    beforeEach(async () => {
      full = false;
      world = await localWorld({ runtime: 'runc' });
      backend = await world.open({}, (parts) => ({
        ...parts,
        records: failingSave(parts.records, () => full),
      }));
    });
    afterEach(async () => {
      full = false;
      await world.destroy();
    });

    it('does not keep a sandbox from being stopped, and it starts again', async () => {
      const id = await world.box(backend);
      full = true;
      expect((await backend.stop(id, { graceMs: 0 })).phase).toBe('stopped');
      expect((await backend.observe(id)).phase).toBe('stopped');
      full = false;
      expect(await world.instances()).toEqual([]);
      expect((await backend.ensure(id, world.spec)).phase).toBe('ready');
    });

    it('does not keep a frozen sandbox from going on', async () => {
      const id = await world.box(backend);
      await backend.freeze(id);
      full = true;
      await backend.thaw(id);
      expect(await backend.observe(id)).toMatchObject({ phase: 'ready' });
      expect(await world.freezerState(id)).toBe('thawed');
      await expect(backend.freeze(id)).rejects.toMatchObject({ code: 'resource_exhausted' });
      expect(await world.freezerState(id)).toBe('thawed');
    });
  },
);
