/** A full disk under the files of a mount: errors inside, and nothing damaged. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { errnoOf } from '../../server/src/bucket-mounts/fuse/fuse-error.ts';
import { parseLine } from '../../server/src/bucket-mounts/journal.ts';
import { openTestFiles } from '../../server/src/bucket-mounts/testing/open-files.ts';

const { ENOSPC } = constants.errno;
const MiB = 1024 * 1024;
const why = process.getuid?.() === 0 ? undefined : 'it mounts a small disk, which needs root';

describe.skipIf(why !== undefined)(`a mount on a full disk ${why ?? ''}`, () => {
  let disk: string;
  beforeEach(() => {
    disk = mkdtempSync('/tmp/cay-full-');
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk]);
  });
  afterEach(() => {
    execFileSync('umount', [disk]);
    rmSync(disk, { recursive: true });
  });

  const open = (leastFree: number) =>
    openTestFiles({ journal: join(disk, 'nodes'), spoolDir: join(disk, 'spool'), leastFree });
  const fill = () => {
    const { bavail, bsize } = statfsSync(disk);
    writeFileSync(join(disk, 'filler'), Buffer.alloc(bavail * bsize));
  };
  const free = () => rmSync(join(disk, 'filler'));
  const asked = (work: () => Promise<unknown>) =>
    work().then(
      () => 0,
      (error: unknown) => errnoOf(error),
    );

  it('refuses writes before the disk is full', async () => {
    await using world = await open(3 * MiB);
    const { attributes } = await world.files.open.create(1, 'a', 1);
    const { node } = attributes;
    expect(await asked(() => world.files.open.write(node, Buffer.alloc(2 * MiB), 0))).toBe(ENOSPC);
    expect(world.files.spools.bytes).toBe(0);
    // One for which there is room is taken.
    expect(await asked(() => world.files.open.write(node, Buffer.alloc(1_000), 0))).toBe(0);
  });

  it('fails with ENOSPC when others have filled it, keeps what it has, and goes on when there is room', async () => {
    await using world = await open(0);
    const { bucket } = world;
    bucket.objects.set('there', Buffer.from('there'));
    const { attributes } = await world.files.open.create(1, 'a', 1);
    const { node } = attributes;
    await world.files.open.write(node, Buffer.from('before'), 0);
    fill();
    expect(await asked(() => world.files.open.write(node, Buffer.alloc(MiB), 6))).toBe(ENOSPC);
    expect((await world.files.getattr(node)).sizeBytes).toBe(6);
    // What exists is read all the same, and can be removed.
    const there = await world.files.lookup(1, 'there');
    expect(Buffer.concat(await world.files.open.read(there.node, 0, 10)).toString()).toBe('there');
    expect(await asked(() => world.files.open.write(there.node, Buffer.from('x'), 0))).toBe(ENOSPC);
    await world.files.unlink(1, 'there', false);
    expect(bucket.objects.has('there')).toBe(false);
    // What was taken goes to the bucket, which needs no room here.
    await world.files.open.flush(node);
    expect(bucket.text('a')).toBe('before');
    free();
    await world.files.open.write(node, Buffer.from(' after'), 6);
    const files = await world.restart();
    await files.writeLeft(0, { all: true });
    expect(bucket.text('a')).toBe('before after');
    expect(world.failures).toEqual([]);
  });

  it('has a journal of whole lines, and its next server knows every file with a content', async () => {
    await using world = await open(0);
    const { bucket } = world;
    const made: string[] = [];
    fill();
    // Some bytes are left, for a part of a line.
    for (let index = 0; index < 400; index++) {
      if (index % 40 === 20) {
        free();
        const { bavail, bsize } = statfsSync(disk);
        writeFileSync(join(disk, 'filler'), Buffer.alloc(Math.max(0, bavail * bsize - 4096 * (index % 7))));
      }
      const name = `${index}-${'n'.repeat(index % 200)}`;
      const failed = await asked(async () => {
        const { attributes } = await world.files.open.create(1, name, 1);
        await world.files.open.write(attributes.node, Buffer.from(name), 0);
      });
      if (failed === 0) made.push(name);
      else expect(failed).toBe(ENOSPC);
    }
    expect(made.length).toBeGreaterThan(0);
    expect(made.length).toBeLessThan(400);
    const lines = readFileSync(join(disk, 'nodes'), 'utf8').split('\n').slice(0, -1);
    for (const line of lines) expect(parseLine(line), line).toBeDefined();
    free();
    const files = await world.restart();
    await files.writeLeft(0, { all: true });
    for (const name of made) expect(bucket.text(name)).toBe(name);
    expect(world.failures).toEqual([]);
  });
});
