/**
 * What a mount does where it matters once: conflicts, bounds, names, large directories, half done renames.
 */
import { constants } from 'node:os';
import { CayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { OpenFlag } from './fuse/opcodes.ts';
import { asked, at, namesIn } from './testing/calls.ts';
import { openTestFiles } from './testing/open-files.ts';

const { errno } = constants;

describe('a mount', () => {
  it('finishes a rename that a killed server had half done, and keeps what was written last', async () => {
    for (const dies of ['put', 'remove', 'copy'] as const)
      for (const dirty of [true, false]) {
        await using world = await openTestFiles();
        const { bucket } = world;
        bucket.objects.set('a', Buffer.from('old'));
        const node = await at(world.files, 'a');
        await world.files.open.open(node, 1);
        if (dirty) await world.files.open.write(node, Buffer.from('new'), 0);
        // The server hangs in the middle, and is killed.
        let killed = false;
        bucket.fault = (call) => {
          if (call !== dies) return undefined;
          killed = true;
          return new Promise(() => {});
        };
        const names = [
          { parent: 1, name: 'a' },
          { parent: 1, name: 'b' },
        ] as const;
        const running = world.files.renames.rename(...names, { flags: 0, repeated: false }).catch(() => {});
        const ended = await Promise.race([running.then(() => true), new Promise((go) => setTimeout(go, 50))]);
        if (ended === true) {
          expect(killed).toBe(false);
          continue;
        }
        bucket.fault = () => undefined;
        const files = await world.restart();
        await files.renames.rename(...names, { flags: 0, repeated: true });
        await files.writeLeft(0, { all: true });
        expect([...bucket.objects.keys()], `${dies} ${dirty}`).toEqual(['b']);
        expect(bucket.text('b'), `${dies} ${dirty}`).toBe(dirty ? 'new' : 'old');
      }
  });

  it('does not overwrite what somebody else has written, and says so', async () => {
    await using world = await openTestFiles();
    const { bucket, failures } = world;
    bucket.objects.set('a', Buffer.from('theirs'));
    const node = await at(world.files, 'a');
    await world.files.open.open(node, 1);
    await world.files.open.write(node, Buffer.from('ours'), 0);
    bucket.objects.set('a', Buffer.from('newer'));
    await expect(world.files.open.flush(node)).rejects.toMatchObject({ code: 'conflict' });
    await world.files.open.release(node);
    expect(bucket.text('a')).toBe('newer');
    expect(failures).toMatchObject([{ key: 'a', lost: true }]);
  });

  it('has no error for a reader who closes what another could not write', async () => {
    await using world = await openTestFiles();
    const { files, bucket } = world;
    const { attributes, handle } = await files.open.create(1, 'a', 1);
    const { node } = attributes;
    await files.open.write(node, Buffer.from('a'), 0);
    const reader = await files.open.open(node, OpenFlag.readOnly);
    bucket.fault = () => {
      throw new CayError('permission_denied', 'No');
    };
    await files.open.flush(node, reader.handle);
    await files.open.release(node, reader.handle);
    await expect(files.open.flush(node, handle)).rejects.toMatchObject({ code: 'permission_denied' });
    // A handle of an earlier server is that of a writer.
    await expect(files.open.flush(node, 1)).rejects.toMatchObject({ code: 'permission_denied' });
  });

  it('bounds what is written and not in the bucket, also side by side', async () => {
    await using world = await openTestFiles({ mostSpooled: 1_000 });
    const { files, bucket } = world;
    for (const name of ['a', 'b', 'c']) bucket.objects.set(name, Buffer.alloc(400));
    const nodes = await Promise.all(['a', 'b', 'c'].map((name) => at(files, name)));
    const results = await Promise.all(
      nodes.map((node) => asked(() => files.open.write(node, Buffer.from('x'), 0))),
    );
    expect(results.filter((one) => one === undefined).length).toBe(2);
    expect(results).toContain(errno.ENOSPC);
    expect(await asked(() => files.open.write(nodes[0]!, Buffer.alloc(10), 2 ** 50))).toBe(errno.ENOSPC);
    const given = { valid: 8, size: 2 ** 52, mode: 0, uid: 0, gid: 0 };
    expect(await asked(() => files.open.setattr(nodes[0]!, given))).toBe(errno.ENOSPC);
    expect(files.spools.bytes).toBe(800);
  });

  it('lists and looks into directories of more than one page', async () => {
    await using world = await openTestFiles();
    const { files, bucket } = world;
    for (let index = 0; index < 2_500; index++) bucket.objects.set(`many/${index}`, Buffer.from('x'));
    for (let index = 0; index < 1_500; index++) bucket.objects.set(`large/${index}`, Buffer.from('x'));
    expect((await namesIn(files, 'many')).length).toBe(2_500);
    expect(await at(files, 'large/1499')).toBeGreaterThan(1);
    expect(await asked(() => at(files, 'large/none'))).toBe(errno.ENOENT);
    const target = { parent: 1, name: 'moved' };
    expect(
      await asked(() =>
        files.renames.rename({ parent: 1, name: 'large' }, target, { flags: 0, repeated: false }),
      ),
    ).toBe(errno.EXDEV);
  });

  it('shows an open directory as it is now to who begins anew', async () => {
    await using world = await openTestFiles();
    const { files } = world;
    const handle = await files.directories.opendir(1);
    const names = async () => {
      const found: string[] = [];
      const take = ({ name }: { name: string }) => found.push(name) > 0;
      await files.directories.readdir(1, { handle, offset: 0, plus: false }, take);
      return found.slice(2);
    };
    expect(await names()).toEqual([]);
    await files.directories.mkdir(1, 'made', false);
    expect(await names()).toEqual(['made']);
  });

  it('refuses names that no bucket takes', async () => {
    await using world = await openTestFiles();
    const { files } = world;
    let parent = 1;
    for (let depth = 0; depth < 5; depth++) {
      const name = String(depth).repeat(250);
      const made = await asked(() => files.directories.mkdir(parent, name, false));
      if (typeof made === 'number') {
        expect(made).toBe(errno.ENAMETOOLONG);
        expect(await asked(() => files.open.create(parent, name, 1))).toBe(errno.ENAMETOOLONG);
        return;
      }
      parent = made.node;
    }
    throw new Error('Nothing was refused');
  });

  it('changes nothing in a read-only one', async () => {
    await using world = await openTestFiles({ readOnly: true });
    world.bucket.objects.set('a', Buffer.from('a'));
    const node = await at(world.files, 'a');
    const { files } = world;
    const tries = [
      () => files.open.open(node, 1),
      () => files.open.write(node, Buffer.from('x'), 0),
      () => files.open.create(1, 'b', 1),
      () => files.unlink(1, 'a', false),
      () => files.directories.mkdir(1, 'b', false),
      () => files.rmdir(1, 'a', false),
      () => files.open.setattr(node, { valid: 8, size: 0, mode: 0, uid: 0, gid: 0 }),
      () =>
        files.renames.rename(
          { parent: 1, name: 'a' },
          { parent: 1, name: 'b' },
          { flags: 0, repeated: false },
        ),
    ];
    for (const one of tries) expect(await asked<unknown>(one)).toBe(errno.EROFS);
    expect(world.bucket.text('a')).toBe('a');
  });
});
