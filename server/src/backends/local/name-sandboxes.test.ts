import { CayError, newId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { resourceError } from '../../host/resource-error.ts';
import { namingSandbox } from './name-sandboxes.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const root = process.getuid?.() === 0;
const INSTANCE = `i-${'a1'.repeat(10)}`;

describe('what a verb of a sandbox rejects with', () => {
  let world: LocalWorld | undefined;
  afterEach(async () => {
    await world?.destroy();
    world = undefined;
  });

  it('speaks of the sandbox wherever the host speaks of its instance, its tree or its cgroup', () => {
    const id = newId('sbx');
    const error = resourceError(
      'unavailable',
      { kind: 'container', name: INSTANCE },
      (container) => `Cannot start ${container}: runc says: cgroup cay/${INSTANCE} is gone`,
      {
        details: { words: `cay/${INSTANCE}`, bytes: 3 },
        hint: `look at cay/${INSTANCE}`,
      },
    );
    expect(error.message).toContain(`container "${INSTANCE}"`);
    expect(namingSandbox(id, error)).toMatchObject({
      code: 'unavailable',
      message: `Cannot start sandbox "${id}": runc says: cgroup cay/${id} is gone`,
      details: { words: `cay/${id}`, bytes: 3 },
      hint: `look at cay/${id}`,
      cause: error,
    });
  });

  it('speaks of the snapshot where the host speaks of its tree', () => {
    const error = resourceError(
      'not_found',
      { kind: 'tree', name: `s-${'a1'.repeat(10)}` },
      (tree) => `Cannot find ${tree} among the committed`,
    );
    expect(namingSandbox(newId('sbx'), error)).toMatchObject({
      message: 'Cannot find its snapshot among the committed',
    });
  });

  it('is the same error if it names nothing that callers do not know', () => {
    const error = new CayError('not_found', 'Template "i-like" is unknown');
    expect(namingSandbox(newId('sbx'), error)).toBe(error);
  });

  it.skipIf(!root)(
    `names the sandbox when its guest is gone${root ? '' : ' (skipped: needs root)'}`,
    async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = await world.box(backend);
      const guest = await backend.connect(id);
      await backend.stop(id, { graceMs: 0 });
      await expect(guest.commands()).rejects.toMatchObject({
        message: expect.stringContaining(`sandbox "${id}"`),
      });
    },
  );

  it.skipIf(!root)(
    `names the sandbox when a runtime cannot start it${root ? '' : ' (skipped: needs root)'}`,
    async () => {
      world = await localWorld({ runtime: 'runc' });
      const backend = await world.open();
      const id = newId('sbx');
      // No process fits into so little, so the runtime has something to say.
      const failure = await backend
        .ensure(id, { ...world.spec, limits: { ...world.spec.limits, pids: 1 } })
        .then(
          () => undefined,
          (error: unknown) => error as CayError,
        );
      expect(failure).toBeInstanceOf(CayError);
      expect(JSON.stringify([failure!.message, failure!.details, failure!.hint])).not.toMatch(
        /i-[a-z0-9]{20}/,
      );
    },
  );
});
