/** What programs in a mount, and the server of its bucket, can make this server hold or do. */
import { constants } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { CayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { answerRequest } from './answer-request.ts';
import { Opcode } from './fuse/opcodes.ts';
import { readRequest } from './fuse/request.ts';
import { ProjectShare } from './project-share.ts';
import { asked } from './testing/calls.ts';
import { message, named } from './testing/messages.ts';
import { openTestFiles } from './testing/open-files.ts';

const { errno } = constants;

describe('a mount', () => {
  it('holds nothing up when a large directory is opened again and again', { timeout: 60_000 }, async () => {
    const COUNT = 60_000;
    const [many, one] = [await openTestFiles(), await openTestFiles()];
    await using _many = many;
    await using _one = one;
    many.bucket.list = async function* () {
      for (let index = 0; index < COUNT; index++) {
        if (index % 1000 === 0) await nextTurn();
        const key = `n${(index * 7919) % 1_000_003}`.padEnd(200, 'x');
        yield { key, sizeBytes: 1, etag: 'a', modifiedAtMs: 0 };
      }
    };
    await many.files.directories.opendir(1);
    let longest = 0;
    let isOver = false;
    const watching = (async () => {
      for (let last = performance.now(); !isOver; last = performance.now()) {
        await nextTurn();
        longest = Math.max(longest, performance.now() - last);
      }
    })();
    await Promise.all(Array.from({ length: 20 }, () => many.files.directories.opendir(1)));
    isOver = true;
    await watching;
    // All of them at once took two seconds.
    expect(longest).toBeLessThan(300);
    const names: string[] = [];
    const handle = await many.files.directories.opendir(1);
    await many.files.directories.readdir(
      1,
      { handle, offset: 0, plus: false },
      ({ name }) => names.push(name) > 0,
    );
    expect(names.length).toBe(COUNT + 2);
    expect(names.slice(2)).toEqual(names.slice(2).toSorted());
  });

  it('has a bounded number of files that its bucket does not take, and so has its project', async () => {
    const share = new ProjectShare();
    await using world = await openTestFiles({ mostContents: 5, share });
    world.bucket.fault = (call) => {
      if (call === 'put') throw new CayError('unavailable', 'away');
      return undefined;
    };
    const write = async (name: string) => {
      const { attributes, handle } = await world.files.open.create(1, name, 1);
      await world.files.open.flush(attributes.node, handle).catch(() => {});
      await world.files.open.release(attributes.node, handle);
      return 0;
    };
    const results = [];
    for (let index = 0; index < 8; index++) results.push(await asked(() => write(`f${index}`)));
    expect(results).toEqual([0, 0, 0, 0, 0, errno.ENFILE, errno.ENFILE, errno.ENFILE]);
    expect(share.contents).toBe(5);
    // They are found again, and have gone when the bucket has them.
    await world.files.close();
    expect(share.contents).toBe(0);
    await world.restart();
    expect(share.contents).toBe(5);
    world.bucket.fault = () => undefined;
    await world.files.writeLeft(0, { all: true });
    expect(share.contents).toBe(0);
    expect(await asked(() => write('again'))).toBe(0);
    share.contents = 1_000_000;
    expect(await asked(() => write('more'))).toBe(errno.ENFILE);
    share.contents = 0;
  });

  it('does not gather attempts while the server of its bucket never answers', async () => {
    await using world = await openTestFiles();
    world.bucket.fault = (call) => {
      if (call === 'put') throw new CayError('unavailable', 'away');
      return undefined;
    };
    for (let index = 0; index < 20; index++) {
      const { attributes, handle } = await world.files.open.create(1, `f${index}`, 1);
      await world.files.open.release(attributes.node, handle);
    }
    world.bucket.fault = (call) => (call === 'put' ? new Promise(() => {}) : undefined);
    for (let round = 0; round < 5; round++) {
      world.files.writeIdle(-1_000).catch(() => {});
      await nextTurn();
    }
    await new Promise((go) => setTimeout(go, 100));
    expect(world.bucket.calls.get('put')).toBe(8);
  });

  it('closes a file that `mknod` has made also if its bucket does not take it', async () => {
    await using world = await openTestFiles();
    world.bucket.fault = (call) => {
      if (call === 'put') throw new CayError('unavailable', 'away');
      return undefined;
    };
    const body = Buffer.concat([Buffer.alloc(16), named('made')]);
    body.writeUInt32LE(0o100644, 0);
    const request = readRequest(message(Opcode.mknod, { body }))!;
    await expect(answerRequest(world.files, request, false)).rejects.toMatchObject({ code: 'unavailable' });
    expect([...world.files.nodes.root.children.values()].map(({ opens }) => opens)).toEqual([0]);
  });
});
