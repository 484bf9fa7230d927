/** Numbers of the FUSE protocol, version 7.31. */
export const Opcode = {
  lookup: 1,
  forget: 2,
  getattr: 3,
  setattr: 4,
  symlink: 6,
  mknod: 8,
  mkdir: 9,
  unlink: 10,
  rmdir: 11,
  rename: 12,
  link: 13,
  open: 14,
  read: 15,
  write: 16,
  statfs: 17,
  release: 18,
  fsync: 20,
  flush: 25,
  opendir: 27,
  readdir: 28,
  releasedir: 29,
  fsyncdir: 30,
  create: 35,
  interrupt: 36,
  destroy: 38,
  batchForget: 42,
  fallocate: 43,
  readdirplus: 44,
  rename2: 45,
} as const;

/** Which fields of a `setattr` are meant. */
export const SetAttr = { mode: 1, uid: 2, gid: 4, size: 8 } as const;

/** Flags of `open`, as the kernel of x86-64 and arm64 has them. */
export const OpenFlag = {
  accessMode: 3,
  readOnly: 0,
  create: 0o100,
  exclusive: 0o200,
  truncate: 0o1000,
} as const;

/** In the answer to `open`: what the kernel has cached of the file is still right. */
export const KEEP_CACHE = 2;

export const RENAME_NOREPLACE = 1;
