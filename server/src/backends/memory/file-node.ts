/** What a directory entry points at. A file with two names is one node with two links. */
interface Common {
  /** Stays the same under every name, and in every copy of the tree. */
  readonly serial: number;
  mode: number;
  uid: number;
  gid: number;
  modifiedAtMs: number;
  links: number;
  xattrs: Map<string, Uint8Array>;
}

export interface Directory extends Common {
  type: 'directory';
  entries: Map<string, FileNode>;
}

export interface RegularFile extends Common {
  type: 'file';
  /**
   * May be longer than `size`, so that appending does not copy each time. Bytes below `size` never change.
   */
  data: Uint8Array;
  size: number;
}

export interface Symlink extends Common {
  type: 'symlink';
  target: string;
}

export interface Device extends Common {
  type: 'char';
  device: 'null' | 'zero';
}

export type FileNode = Directory | RegularFile | Symlink | Device;

export interface Owner {
  uid: number;
  gid: number;
}

let serials = 0;

const common = ({ uid, gid }: Owner, mode: number): Common => ({
  serial: ++serials,
  mode,
  uid,
  gid,
  modifiedAtMs: Date.now(),
  links: 1,
  xattrs: new Map(),
});

export const newDirectory = (owner: Owner, mode = 0o755): Directory => ({
  ...common(owner, mode),
  type: 'directory',
  entries: new Map(),
});
export const newFile = (owner: Owner, mode = 0o644): RegularFile => ({
  ...common(owner, mode),
  type: 'file',
  data: new Uint8Array(0),
  size: 0,
});
export const newSymlink = (owner: Owner, target: string): Symlink => ({
  ...common(owner, 0o777),
  type: 'symlink',
  target,
});
export const newDevice = (owner: Owner, device: Device['device']): Device => ({
  ...common(owner, 0o666),
  type: 'char',
  device,
});

export const contentOf = (file: RegularFile): Uint8Array => file.data.subarray(0, file.size);
