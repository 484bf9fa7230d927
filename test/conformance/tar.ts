import { expect } from 'vitest';
import { all, gather, inPieces, noise, type Box } from './box.ts';
import { rejects, type Suite } from './suite.ts';
import { tarOf, type TarEntry } from './tar-entry.ts';

const untar = (box: Box, name: string, entries: TarEntry[]) =>
  box.files.untar(`${box.dir}/${name}`, inPieces(tarOf(entries), 700));

/** The tree as lines, to compare two of them. */
async function tree(box: Box, name: string): Promise<string[]> {
  const root = `${box.dir}/${name}`;
  const infos = await all(box.files.list(root, { depth: 20 }));
  return infos.map(({ path, type, mode, sizeBytes, target }) => {
    const size = type === 'file' ? sizeBytes : '-';
    return `${path.slice(root.length + 1)} ${type} ${type === 'symlink' ? '-' : mode.toString(8)} ${size} ${target ?? ''}`;
  });
}

export function tarCases(suite: Suite): void {
  suite.share();

  suite.inBox('a tree that was packed and unpacked is the same tree', ['tar'], async (box) => {
    const long = `${'long-directory-name/'.repeat(12)}${'x'.repeat(200)}`;
    await box.write('from/file', noise(70_001));
    await box.write('from/empty', '');
    await box.write('from/ünïcödé 世界', 'text');
    await box.write(`from/${long}`, 'far');
    await box.files.write(`${box.dir}/from/tool`, Buffer.from('#!'), { mode: 0o750 });
    await box.files.mkdir(`${box.dir}/from/hollow`, { mode: 0o700 });
    await box.files.symlink(`${box.dir}/from/link`, 'file');
    const packed = await gather(await box.files.tar(`${box.dir}/from`));
    const { entries } = await box.files.untar(`${box.dir}/to`, inPieces(packed, 9999));
    expect(entries).toBeGreaterThanOrEqual(8);
    expect(await tree(box, 'to')).toEqual(await tree(box, 'from'));
    expect((await box.read('to/file')).equals(noise(70_001))).toBe(true);
    expect((await box.read(`to/${long}`)).toString()).toBe('far');
  });

  suite.inBox('tar() packs only the paths that were named', ['tar'], async (box) => {
    for (const name of ['a/one', 'b/two', 'c']) await box.write(`from/${name}`, name);
    const packed = await gather(await box.files.tar(`${box.dir}/from`, { paths: ['a', 'c'] }));
    await box.files.untar(`${box.dir}/to`, inPieces(packed, 512));
    expect((await tree(box, 'to')).map((line) => line.split(' ')[0])).toEqual(['a', 'a/one', 'c']);
  });

  suite.inBox('tar() of a path that leaves the directory is refused', ['tar'], async (box) => {
    await box.write('from/file', '');
    await box.write('secret', 'secret');
    await rejects(
      box.files.tar(`${box.dir}/from`, { paths: ['../secret'] }).then(gather),
      'invalid_argument',
    );
    await rejects(
      box.files.tar(`${box.dir}/from`, { paths: ['/etc/passwd'] }).then(gather),
      'invalid_argument',
    );
  });

  suite.inBox('tar() of what is missing is not_found', ['tar'], async (box) => {
    await rejects(box.files.tar(`${box.dir}/missing`).then(gather), 'not_found');
  });

  suite.inBox('untar() counts entries and bytes, and makes the directory', ['tar'], async (box) => {
    const done = await untar(box, 'a/b', [
      { name: 'dir/', type: '5', mode: 0o755 },
      { name: 'dir/file', content: 'hello' },
      { name: 'other', content: 'you' },
    ]);
    expect(done).toEqual({ entries: 3, bytes: 8 });
    expect((await box.read('a/b/dir/file')).toString()).toBe('hello');
  });

  suite.inBox('untar() replaces files that are there already', ['tar'], async (box) => {
    await box.write('to/file', 'old and longer');
    await untar(box, 'to', [{ name: 'file', content: 'new' }]);
    expect((await box.read('to/file')).toString()).toBe('new');
  });

  suite.inBox('what tar() makes the tar program can read', ['tar', 'processes'], async (box) => {
    await box.write('from/dir/file', 'content');
    await box.write('packed.tar', await gather(await box.files.tar(`${box.dir}/from`)));
    expect((await box.run('mkdir out && tar -xf packed.tar -C out && cat out/dir/file')).stdout).toBe(
      'content',
    );
  });

  suite.inBox('what the tar program makes untar() can read', ['tar', 'processes'], async (box) => {
    const name = 'n'.repeat(180);
    await box.run(`mkdir -p in/dir && echo content > in/dir/${name} && tar -cf packed.tar -C in .`);
    await box.files.untar(`${box.dir}/to`, inPieces(await box.read('packed.tar'), 5000));
    expect((await box.read(`to/dir/${name}`)).toString()).toBe('content\n');
  });

  suite.inBox(
    'untar() by root makes links and pipes as they were packed',
    ['tar', 'processes'],
    async (box) => {
      const entries: TarEntry[] = [
        { name: 'link', type: '2', link: '/etc/passwd' },
        { name: 'pipe', type: '6' },
      ];
      await box.root.untar(`${box.dir}/to`, inPieces(tarOf(entries), 700));
      const { stdout } = await box.run('stat -c "%N %F %Y" to/link to/pipe');
      expect(stdout).toBe("'to/link' -> '/etc/passwd' symbolic link 0\n'to/pipe' fifo 0\n");
    },
  );

  suite.inBox('untar() refuses a name with ".."', ['tar'], async (box) => {
    for (const name of ['../escaped', 'a/../../escaped', '..']) {
      await rejects(untar(box, 'to', [{ name, content: 'x' }]), 'invalid_argument');
    }
    await rejects(box.files.stat(`${box.dir}/escaped`), 'not_found');
  });

  suite.inBox('untar() lets no absolute name out of the directory', ['tar'], async (box) => {
    // Refused, or taken as relative: both keep it inside.
    await untar(box, 'to', [{ name: `${box.dir}/escaped`, content: 'x' }]).catch((error: unknown) =>
      expect(error).toMatchObject({ code: 'invalid_argument' }),
    );
    await rejects(box.files.stat(`${box.dir}/escaped`), 'not_found');
  });

  suite.inBox('untar() does not write through a symlink that it has just made', ['tar'], async (box) => {
    await box.files.mkdir(`${box.dir}/outside`);
    const entries: TarEntry[] = [
      { name: 'way', type: '2', link: '../outside' },
      { name: 'way/escaped', content: 'x' },
    ];
    await rejects(untar(box, 'to', entries), 'invalid_argument');
    expect(await all(box.files.list(`${box.dir}/outside`))).toEqual([]);
  });

  suite.inBox('untar() does not write through a symlink that was there before', ['tar'], async (box) => {
    await box.files.mkdir(`${box.dir}/outside`);
    await box.files.mkdir(`${box.dir}/to`);
    await box.files.symlink(`${box.dir}/to/way`, '../outside');
    await rejects(untar(box, 'to', [{ name: 'way/escaped', content: 'x' }]), 'invalid_argument');
    expect(await all(box.files.list(`${box.dir}/outside`))).toEqual([]);
  });

  suite.inBox('untar() makes no hard link to what is outside', ['tar'], async (box) => {
    await box.write('secret', 'secret');
    await rejects(untar(box, 'to', [{ name: 'leak', type: '1', link: '../secret' }]), 'invalid_argument');
    await rejects(box.files.stat(`${box.dir}/to/leak`), 'not_found');
  });

  suite.inBox('untar() makes no device', ['tar'], async (box) => {
    const tar = inPieces(tarOf([{ name: 'mem', type: '3' }]), 700);
    await rejects(box.root.untar(`${box.dir}/to`, tar), 'invalid_argument', 'unsupported');
    await rejects(box.files.stat(`${box.dir}/to/mem`), 'not_found');
  });

  suite.inBox('untar() of a truncated archive is invalid_argument', ['tar'], async (box) => {
    const whole = tarOf([{ name: 'file', content: 'x'.repeat(5000) }]);
    await rejects(
      box.files.untar(`${box.dir}/to`, inPieces(whole.subarray(0, 2000), 700)),
      'invalid_argument',
    );
    await rejects(
      box.files.untar(`${box.dir}/to`, inPieces(whole.subarray(0, 300), 700)),
      'invalid_argument',
    );
  });

  suite.inBox('untar() of garbage is invalid_argument', ['tar'], async (box) => {
    await rejects(box.files.untar(`${box.dir}/to`, inPieces(noise(20_000, 99), 700)), 'invalid_argument');
    const broken = tarOf([{ name: 'file', content: 'x' }]);
    broken[0] = 0x67;
    await rejects(box.files.untar(`${box.dir}/to`, inPieces(broken, 700)), 'invalid_argument');
  });

  suite.inBox("untar() by the user makes nothing of root's", ['tar', 'users'], async (box) => {
    await untar(box, 'to', [{ name: 'file', content: 'x', mode: 0o4755 }]);
    const info = await box.files.stat(`${box.dir}/to/file`);
    expect(info.uid).not.toBe(0);
  });
}
