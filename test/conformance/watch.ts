import type { FileEvent } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { until, within, type Box } from './box.ts';
import { rejects, type Suite } from './suite.ts';

async function watching(box: Box, path: string, recursive: boolean) {
  const events: FileEvent[] = [];
  const iterator = (await box.files.watch(path, { recursive }))[Symbol.asyncIterator]();
  const reading = (async () => {
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) events.push(next.value);
  })();
  // The iterator may be closed while a read is pending; how that read settles is not the case's business.
  reading.catch(() => {});
  return {
    events,
    sees: (type: FileEvent['type'], name: string) =>
      until(
        `"${type}" of "${name}" was seen among ${JSON.stringify(events)}`,
        () => events.some((event) => event.type === type && event.path === `${path}/${name}`),
        5000,
      ),
    stop: () => within(5000, 'the end of the watch', Promise.resolve(iterator.return?.())),
  };
}

export function watchCases(suite: Suite): void {
  suite.share();

  suite.inBox('watch() sees a file created, modified and removed', ['watch'], async (box) => {
    const watch = await watching(box, box.dir, false);
    await box.run('echo one > file');
    await watch.sees('created', 'file');
    await box.run('echo two >> file');
    await watch.sees('modified', 'file');
    await box.files.remove(`${box.dir}/file`);
    await watch.sees('removed', 'file');
    await watch.stop();
  });

  suite.inBox('watch() sees a rename under the new name', ['watch'], async (box) => {
    await box.write('before', '');
    const watch = await watching(box, box.dir, false);
    await box.files.move(`${box.dir}/before`, `${box.dir}/after`);
    await watch.sees('renamed', 'after');
    await watch.stop();
  });

  suite.inBox(
    'watch() sees a write in one step, with no temporary name left over',
    ['watch'],
    async (box) => {
      await box.write('file', 'old');
      const watch = await watching(box, box.dir, false);
      await box.write('file', 'new');
      await until('something of "file" was seen', () =>
        watch.events.some(({ path }) => path === `${box.dir}/file`),
      );
      await watch.stop();
    },
  );

  suite.inBox('watch() sees a change of mode', ['watch'], async (box) => {
    await box.write('file', '');
    const watch = await watching(box, box.dir, false);
    await box.files.chmod(`${box.dir}/file`, 0o600);
    await watch.sees('attributes', 'file');
    await watch.stop();
  });

  suite.inBox('a watch that is not recursive does not look into subdirectories', ['watch'], async (box) => {
    await box.files.mkdir(`${box.dir}/sub`);
    const watch = await watching(box, box.dir, false);
    await box.write('sub/hidden', '');
    await box.write('marker', '');
    await until('the marker was seen', () => watch.events.some(({ path }) => path === `${box.dir}/marker`));
    expect(watch.events.filter(({ path }) => path.endsWith('/hidden'))).toEqual([]);
    await watch.stop();
  });

  suite.inBox('a recursive watch sees what happens in directories made later', ['watch'], async (box) => {
    const watch = await watching(box, box.dir, true);
    await box.files.mkdir(`${box.dir}/new`);
    await watch.sees('created', 'new');
    await box.run('mkdir new/deep && echo x > new/deep/file');
    await watch.sees('created', 'new/deep');
    await watch.sees('created', 'new/deep/file');
    await box.files.remove(`${box.dir}/new/deep/file`);
    await watch.sees('removed', 'new/deep/file');
    await watch.stop();
  });

  suite.inBox('watch() of what is missing is not_found', ['watch'], async (box) => {
    await rejects(box.files.watch(`${box.dir}/missing`), 'not_found');
  });

  suite.inBox('twenty watches at once all see the same event', ['watch'], async (box) => {
    const watches = await Promise.all(Array.from({ length: 20 }, () => watching(box, box.dir, false)));
    await box.write('file', '');
    await Promise.all(
      watches.map((watch) =>
        until('the file was seen', () => watch.events.some(({ path }) => path.endsWith('/file'))),
      ),
    );
    await Promise.all(watches.map((watch) => watch.stop()));
  });
}
