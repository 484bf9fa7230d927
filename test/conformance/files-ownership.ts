import { expect } from 'vitest';
import { rejects, type Suite } from './suite.ts';

export function ownershipCases(suite: Suite): void {
  suite.share();

  suite.inBox('chmod() changes the mode, of a tree only when asked', [], async (box) => {
    await box.write('tree/a/file', '');
    await box.files.chmod(`${box.dir}/tree`, 0o711);
    expect((await box.files.stat(`${box.dir}/tree`)).mode).toBe(0o711);
    expect((await box.files.stat(`${box.dir}/tree/a/file`)).mode).not.toBe(0o711);
    await box.files.chmod(`${box.dir}/tree`, 0o755, { recursive: true });
    expect((await box.files.stat(`${box.dir}/tree/a/file`)).mode).toBe(0o755);
    expect((await box.files.stat(`${box.dir}/tree/a`)).mode).toBe(0o755);
  });

  suite.inBox('chmod() of a tree does not follow symlinks out of it', [], async (box) => {
    await box.write('outside', '');
    await box.files.chmod(`${box.dir}/outside`, 0o644);
    await box.files.mkdir(`${box.dir}/tree`);
    await box.files.symlink(`${box.dir}/tree/link`, '../outside');
    await box.files.chmod(`${box.dir}/tree`, 0o700, { recursive: true });
    expect((await box.files.stat(`${box.dir}/outside`)).mode).toBe(0o644);
  });

  suite.inBox('chown() by root changes owner and group, by name and by number', ['users'], async (box) => {
    const path = await box.write('file', '');
    await box.root.chown(path, '1234:5678');
    expect(await box.files.stat(path)).toMatchObject({ uid: 1234, gid: 5678 });
    await box.root.chown(path, 'root:root');
    expect(await box.files.stat(path)).toMatchObject({ uid: 0, gid: 0 });
    await box.root.chown(path, '77');
    expect((await box.files.stat(path)).uid).toBe(77);
    await box.root.chown(path, 'user');
    expect((await box.files.stat(path)).uid).toBe(Number((await box.run(['id', '-u'])).stdout));
  });

  suite.inBox('chown() of a tree reaches all of it and no target of a symlink', ['users'], async (box) => {
    await box.write('outside', '');
    await box.write('tree/a/file', '');
    await box.write('elsewhere/file', '');
    await box.files.symlink(`${box.dir}/tree/link`, '../outside');
    // Some kernels open a directory by a link to it although they are asked not to.
    await box.files.symlink(`${box.dir}/tree/links`, '../elsewhere');
    await box.root.chown(`${box.dir}/tree`, '0:0', { recursive: true });
    expect((await box.files.stat(`${box.dir}/tree/a/file`)).uid).toBe(0);
    for (const path of ['outside', 'elsewhere', 'elsewhere/file'])
      expect((await box.files.stat(`${box.dir}/${path}`)).uid, path).not.toBe(0);
  });

  suite.inBox('chown() by the user is permission_denied', ['users'], async (box) => {
    const path = await box.write('file', '');
    const error = await rejects(box.files.chown(path, 'root'), 'permission_denied');
    expect(error.details).toMatchObject({ errno: 'EPERM' });
  });

  suite.inBox('chown() to an unknown user is not_found or invalid_argument', ['users'], async (box) => {
    const path = await box.write('file', '');
    await rejects(box.root.chown(path, 'nobody-of-that-name'), 'not_found', 'invalid_argument');
  });

  suite.inBox('the user may not read what is closed to it, and root may', ['users'], async (box) => {
    const path = `${box.dir}/secret`;
    await box.root.write(path, Buffer.from('secret'), { mode: 0o600 });
    const error = await rejects(box.files.read(path), 'permission_denied');
    expect(error.details).toMatchObject({ errno: 'EACCES' });
    expect((await box.root.read(path)).info.sizeBytes).toBe(6);
  });

  suite.inBox('the user may not write where root alone may', ['users'], async (box) => {
    for (const path of ['/etc/intruder', '/usr/intruder', '/root/intruder', '/intruder']) {
      await rejects(box.files.write(path, Buffer.from('x')), 'permission_denied');
      await rejects(box.files.mkdir(`${path}-dir`), 'permission_denied');
    }
    await rejects(box.files.remove('/etc/passwd'), 'permission_denied');
    await rejects(box.files.move('/etc/passwd', `${box.dir}/passwd`), 'permission_denied');
    await rejects(box.files.symlink('/etc/intruder', '/tmp'), 'permission_denied');
  });

  suite.inBox('a closed directory on the way is permission_denied', ['users'], async (box) => {
    await box.root.mkdir(`${box.dir}/closed`, { mode: 0o700 });
    await box.root.write(`${box.dir}/closed/file`, Buffer.from('x'), { mode: 0o644 });
    await rejects(box.files.stat(`${box.dir}/closed/file`), 'permission_denied');
    await rejects(box.files.read(`${box.dir}/closed/file`), 'permission_denied');
  });

  suite.inBox('what root writes belongs to root', ['users'], async (box) => {
    await box.root.write(`${box.dir}/file`, Buffer.from('x'));
    expect(await box.files.stat(`${box.dir}/file`)).toMatchObject({ uid: 0, gid: 0 });
  });

  suite.inBox('files() of an unknown user rejects not_found', [], async (box) => {
    await rejects(box.guest.files('nobody-of-that-name').stat('/tmp'), 'not_found');
  });

  suite.inBox('xattrs() sets, tells and removes attributes', ['xattrs'], async (box) => {
    const path = await box.write('file', '');
    expect(await box.files.xattrs(path)).toEqual({});
    const value = Buffer.from([0, 1, 255]);
    const set = await box.files.xattrs(path, { color: Buffer.from('blue'), raw: value });
    expect(Object.keys(set).sort()).toEqual(['color', 'raw']);
    expect(Buffer.from((await box.files.xattrs(path))['raw']!).equals(value)).toBe(true);
    const left = await box.files.xattrs(path, { color: null });
    expect(Object.keys(left)).toEqual(['raw']);
  });

  suite.inBox('xattrs() of what is missing is not_found', ['xattrs'], async (box) => {
    await rejects(box.files.xattrs(`${box.dir}/missing`), 'not_found');
  });
}
