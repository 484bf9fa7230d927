import type { Files } from '../../guest/guest.ts';

/** Called after every change, with the type and data of its event. */
export type OnFileChange = (type: string, data: Record<string, unknown>) => Promise<void>;

/** Files of one user, with an audit event for every change that succeeded. */
export function auditedFiles(files: Files, user: string, onChange: OnFileChange): Files {
  return {
    stat: files.stat,
    list: files.list,
    read: files.read,
    watch: files.watch,
    tar: files.tar,
    async write(path, data, options) {
      const info = await files.write(path, data, options);
      await onChange('file.written', { user, path, sizeBytes: info.sizeBytes });
      return info;
    },
    async mkdir(path, options) {
      const created = await files.mkdir(path, options);
      if (created) await onChange('file.created', { user, path });
      return created;
    },
    async move(from, to, options) {
      await files.move(from, to, options);
      await onChange('file.moved', { user, from, to });
    },
    async remove(path, options) {
      await files.remove(path, options);
      await onChange('file.removed', { user, path });
    },
    async chmod(path, mode, options) {
      await files.chmod(path, mode, options);
      await onChange('file.changed', { user, path, mode });
    },
    async chown(path, owner, options) {
      await files.chown(path, owner, options);
      await onChange('file.changed', { user, path, owner });
    },
    async symlink(path, target, options) {
      await files.symlink(path, target, options);
      await onChange('file.created', { user, path, target });
    },
    async xattrs(path, set, options) {
      const attributes = await files.xattrs(path, set, options);
      if (set !== undefined) await onChange('file.changed', { user, path });
      return attributes;
    },
    async untar(path, data, options) {
      const unpacked = await files.untar(path, data, options);
      await onChange('file.unpacked', { user, path, ...unpacked });
      return unpacked;
    },
  };
}
