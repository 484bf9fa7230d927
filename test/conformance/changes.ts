import { newId, type FileChange, type SnapshotId } from '@cay/sdk/protocol';
import { expect } from 'vitest';
import { all, gather, type Box } from './box.ts';
import { rejects, type Suite } from './suite.ts';
import { tarNames } from './tar-entry.ts';

const EMPTY = { content: false, mode: false, owner: false };

/**
 * What has become of the case's own directory: the rest of the tree belongs to the system, which may note
 * things.
 */
function own(box: Box, changes: FileChange[]): FileChange[] {
  return changes.filter(
    ({ path, from }) => path.startsWith(`${box.dir}/`) || from?.startsWith(`${box.dir}/`),
  );
}

const brief = (box: Box, changes: FileChange[]) =>
  own(box, changes).map(({ change, path, from, content, mode, owner }) =>
    [
      change,
      path.slice(box.dir.length),
      from?.slice(box.dir.length),
      content && 'content',
      mode && 'mode',
      owner && 'owner',
    ]
      .filter(Boolean)
      .join(' '),
  );

export function changeCases(suite: Suite): void {
  const between = (from: SnapshotId, to: SnapshotId) => all(suite.snapshots.changes(from, to));

  suite.case(
    'changes() tells every kind of change, in the order of paths',
    ['snapshots', 'users'],
    async () => {
      const box = await suite.box();
      const at = (name: string) => `${box.dir}/${name}`;
      for (const name of [
        'content',
        'mode',
        'owner',
        'removed',
        'same',
        'old',
        'gone/file',
        'kind',
        'moved/a',
        'moved/b',
        'grown',
      ])
        await box.write(name, name);
      await box.files.symlink(at('link'), 'same');
      const before = await suite.snapshot(box.id);
      expect(await between(before, before)).toEqual([]);
      await box.write('content', 'CONTENT');
      await box.files.write(at('grown'), Buffer.from(' more'), { append: true });
      await box.files.chmod(at('mode'), 0o600);
      await box.root.chown(at('owner'), '1234:5678');
      await box.files.remove(at('removed'));
      await box.files.remove(at('gone'), { recursive: true });
      await box.files.move(at('old'), at('young'));
      await box.files.move(at('moved'), at('newly'));
      await box.files.remove(at('kind'));
      await box.files.mkdir(at('kind'));
      await box.files.remove(at('link'));
      await box.files.symlink(at('link'), 'content');
      await box.write('sub/added', 'added');
      const after = await suite.snapshot(box.id);
      const changes = await between(before, after);
      expect(brief(box, changes)).toEqual([
        'modified /content content',
        'removed /gone',
        'removed /gone/file',
        'modified /grown content',
        'removed /kind',
        'added /kind',
        'modified /link content',
        'modified /mode mode',
        'renamed /newly /moved',
        'modified /owner owner',
        'removed /removed',
        'added /sub',
        'added /sub/added',
        'renamed /young /old',
      ]);
      const of = (name: string, change: FileChange['change']) =>
        changes.find((each) => each.path === at(name) && each.change === change);
      const { uid, gid } = await box.files.stat(at('same'));
      expect(of('sub/added', 'added')).toEqual({
        path: at('sub/added'),
        change: 'added',
        type: 'file',
        after: { size: 5, mode: 0o644, uid, gid },
        ...EMPTY,
      });
      expect(of('removed', 'removed')).toEqual({
        path: at('removed'),
        change: 'removed',
        type: 'file',
        before: { size: 7, mode: 0o644, uid, gid },
        ...EMPTY,
      });
      // Owners are those that the sandbox sees.
      expect(of('owner', 'modified')).toMatchObject({
        before: { uid, gid },
        after: { uid: 1234, gid: 5678 },
      });
      expect(of('mode', 'modified')).toMatchObject({
        type: 'file',
        before: { mode: 0o644 },
        after: { mode: 0o600 },
      });
      expect(of('grown', 'modified')).toMatchObject({ before: { size: 5 }, after: { size: 10 } });
      expect(of('kind', 'removed')!.type).toBe('file');
      expect(of('kind', 'added')!.type).toBe('directory');
      expect(of('newly', 'renamed')!.type).toBe('directory');
      expect(of('link', 'modified')!.type).toBe('symlink');
      const back = brief(box, await between(after, before));
      expect(back).toContain('added /removed');
      expect(back).toContain('removed /sub/added');
      expect(back).toContain('renamed /old /young');
    },
  );

  suite.case('changes() finds what was changed in a directory that was moved', ['snapshots'], async () => {
    const box = await suite.box();
    for (const name of ['old/same', 'old/edited', 'old/deep/removed']) await box.write(name, name);
    const before = await suite.snapshot(box.id);
    await box.files.move(`${box.dir}/old`, `${box.dir}/new`);
    await box.files.write(`${box.dir}/new/edited`, Buffer.from('!'), { append: true });
    await box.files.remove(`${box.dir}/new/deep/removed`);
    const found = brief(box, await between(before, await suite.snapshot(box.id)));
    expect(found).toEqual(
      ['modified /new/edited content', 'removed /old/deep/removed', 'renamed /new /old'].sort((a, b) =>
        pathOf(a) < pathOf(b) ? -1 : 1,
      ),
    );
  });

  suite.case('changes() takes new times and the same content for no change', ['snapshots'], async () => {
    const box = await suite.box();
    await box.write('note', 'same');
    const before = await suite.snapshot(box.id);
    await box.write('note', 'same');
    await box.run(['touch', `${box.dir}/note`]);
    expect(brief(box, await between(before, await suite.snapshot(box.id)))).toEqual([]);
  });

  suite.case('changes() tells names with spaces, line breaks and 255 bytes', ['snapshots'], async () => {
    const box = await suite.box();
    const names = [
      'a b',
      'line\nbreak',
      'ünïcödé 世界',
      'quote"\'\\',
      '-rf',
      'x'.repeat(255),
      ' ',
      '\u001b[31m',
    ];
    const before = await suite.snapshot(box.id);
    for (const name of names) await box.write(name, name);
    const after = await suite.snapshot(box.id);
    const paths = own(box, await between(before, after)).map(({ path }) => path.slice(box.dir.length + 1));
    expect(paths.sort()).toEqual([...names].sort());
    for (const name of names) {
      expect((await gather(suite.snapshots.snapshotFiles(after).read(`${box.dir}/${name}`))).toString()).toBe(
        name,
      );
    }
  });

  suite.case(
    'names that are no UTF-8 are kept, and do not hide the others',
    ['snapshots', 'processes'],
    async () => {
      const box = await suite.box();
      const before = await suite.snapshot(box.id);
      await box.run(`printf x > "$(printf 'bad\\377name')"; printf y > good`);
      const after = await suite.snapshot(box.id);
      const paths = own(box, await between(before, after)).map(({ path }) => path);
      expect(paths).toHaveLength(2);
      expect(paths).toContain(`${box.dir}/good`);
      const clone = await suite.clone(after);
      expect((await clone.run(`ls ${box.dir} | od -An -c | tr -d ' \\n'`)).stdout).toContain('bad377name');
    },
  );

  suite.case('changes() of what is unknown rejects not_found', ['snapshots'], async () => {
    const box = await suite.box();
    const snapshot = await suite.snapshot(box.id);
    await rejects(between(snapshot, newId('snap')), 'not_found');
    await rejects(between(newId('snap'), snapshot), 'not_found');
  });

  suite.case(
    'the files of a snapshot are read as they are, without following a symlink',
    ['snapshots', 'users'],
    async () => {
      const box = await suite.box();
      await box.root.write(`${box.dir}/secret`, Buffer.from('only root'), { mode: 0o600 });
      await box.files.symlink(`${box.dir}/link`, '/etc/passwd');
      await box.files.symlink(`${box.dir}/dir`, '/etc');
      const files = suite.snapshots.snapshotFiles(await suite.snapshot(box.id));
      const read = async (path: string) => (await gather(files.read(path))).toString();
      expect(await read(`${box.dir}/secret`)).toBe('only root');
      expect(await read(`${box.dir}/link`)).toBe('/etc/passwd');
      await rejects(read(`${box.dir}/dir/passwd`), 'not_found', 'failed_precondition');
      await rejects(
        read(`${box.dir}/../../../../../../etc/shadow`),
        'not_found',
        'failed_precondition',
        'invalid_argument',
      );
      await rejects(read(`${box.dir}/missing`), 'not_found');
      await rejects(read(box.dir), 'failed_precondition');
      await rejects(read('/'), 'failed_precondition');
      await rejects(gather(suite.snapshots.snapshotFiles(newId('snap')).read('/etc/passwd')), 'not_found');
    },
  );

  suite.case(
    'tar() of a snapshot has the paths that were named and all below them',
    ['snapshots'],
    async () => {
      const box = await suite.box();
      for (const name of ['a/one', 'a/deep/two', 'b/three', 'c']) await box.write(name, name);
      const files = suite.snapshots.snapshotFiles(await suite.snapshot(box.id));
      const packed = await gather(files.tar([`${box.dir}/a`, `${box.dir}/c`]));
      const top = box.dir.slice(1);
      expect(tarNames(packed)).toEqual([
        `${top}/a`,
        `${top}/a/deep`,
        `${top}/a/deep/two`,
        `${top}/a/one`,
        `${top}/c`,
      ]);
      await rejects(gather(files.tar([`${box.dir}/missing`])), 'not_found');
      await rejects(gather(files.tar([])), 'invalid_argument');
      const whole = tarNames(await gather(files.tar(['/home'])));
      expect(whole).toEqual(expect.arrayContaining(['home', `${top}/b/three`]));
    },
  );
}

const pathOf = (line: string) => line.split(' ')[1]!;
