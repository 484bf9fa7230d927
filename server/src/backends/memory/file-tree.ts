import type { FileEvent, FileInfo } from '@cay/sdk/protocol';
import { fileError } from './errno.ts';
import { newDirectory, newFile, type Directory, type FileNode, type RegularFile } from './file-node.ts';
import type { User } from './users.ts';

const MAX_LINKS = 40;
const WRITABLE_ROOTS = ['/tmp', '/run', '/dev/shm'];

/** Where a path leads: the directory that has, or would have, the last name, and what is there. */
export interface Place {
  parent: Directory;
  name: string;
  node: FileNode | undefined;
  /** Without symlinks and dots. */
  path: string;
}

/** A directory of another tree that is shown in place of one of this tree. */
export interface Mounted {
  root: Directory;
  /** Where what is written counts. */
  tree: FileTree;
  readOnly: boolean;
  /** What it hides. */
  covered: Directory;
}

/**
 * A file system in memory: nodes, names, rights and room.
 *
 * It knows what may be done and what follows from it; the verbs that users call are in `memory-files.ts`.
 */
export interface FileTree {
  readonly root: Directory;
  usedBytes: number;
  limitBytes: number | null;
  readOnly: boolean;
  /** What is mounted, by its path. */
  readonly mounts: Map<string, Mounted>;
  readonly listeners: Set<(type: FileEvent['type'], path: string) => void>;
  /** Follows every symlink but, unless asked to, the last. Throws when a directory on the way is missing. */
  find(user: User, path: string, options?: { follow?: boolean }): Place;
  /** As `find`, and throws when nothing is there. */
  get(user: User, path: string, options?: { follow?: boolean }): Place & { node: FileNode };
  /** Throws unless the user may do that with the node: 4 read, 2 write, 1 enter or execute. */
  demand(user: User, node: FileNode, bits: number, path: string): void;
  /** Makes the directory and its parents; returns whether it made the last. */
  makeDirectory(user: User, path: string, mode?: number): boolean;
  /** Puts a node at a place, in one step. It replaces what had the name. */
  put(user: User, place: Place, node: FileNode): void;
  unlink(user: User, place: Place): void;
  /** Gives what is at `from` the name of `to`, in one step. */
  rename(user: User, from: Place & { node: FileNode }, to: Place): void;
  /** Throws where the root is read-only. */
  demandMutable(path: string): void;
  /** Throws when there is no room. Negative gives back. */
  reserve(bytes: number, path: string): void;
  append(file: RegularFile, data: Uint8Array, path: string): void;
  emit(type: FileEvent['type'], path: string): void;
}

const isRoot = (user: User) => user.uid === 0 || user.reach === true;

export function fileTree(root = newDirectory({ uid: 0, gid: 0 })): FileTree {
  function demand(user: User, node: FileNode, bits: number, path: string): void {
    if (isRoot(user)) {
      // Root reads and writes all, but executes only files with an execute bit.
      if (bits & 1 && node.type === 'file' && !(node.mode & 0o111)) throw fileError('EACCES', path);
      return;
    }
    const granted =
      node.uid === user.uid ? node.mode >> 6 : node.gid === user.gid ? node.mode >> 3 : node.mode;
    if ((granted & bits) !== bits) throw fileError('EACCES', path);
  }

  function find(user: User, path: string, { follow = true }: { follow?: boolean } = {}): Place {
    checkPath(path);
    const rest = partsOf(path);
    const trail: { node: Directory; name: string }[] = [];
    let links = 0;
    const here = () => trail.at(-1)?.node ?? root;
    for (;;) {
      const name = rest.shift();
      if (name === undefined) {
        const last = trail.pop();
        if (!last) return { parent: root, name: '', node: root, path: '/' };
        return { parent: here(), name: last.name, node: last.node, path: pathOf(trail, last.name) };
      }
      if (name === '..') {
        trail.pop();
        continue;
      }
      demand(user, here(), 1, path);
      const node = here().entries.get(name);
      const atEnd = rest.length === 0;
      if (node?.type === 'symlink' && (!atEnd || follow || path.endsWith('/'))) {
        if (++links > MAX_LINKS) throw fileError('ELOOP', path);
        if (node.uid !== 0) user.reach = false;
        if (node.target.startsWith('/')) trail.length = 0;
        rest.unshift(...partsOf(node.target));
        continue;
      }
      if (node?.type === 'directory') {
        trail.push({ node, name });
        continue;
      }
      if (!atEnd) throw fileError(node ? 'ENOTDIR' : 'ENOENT', path);
      return { parent: here(), name, node, path: pathOf(trail, name) };
    }
  }

  function mountAt(path: string): [path: string, Mounted] | undefined {
    for (const entry of tree.mounts) if (path === entry[0] || path.startsWith(`${entry[0]}/`)) return entry;
    return undefined;
  }

  const accountOf = (path: string): FileTree => mountAt(path)?.[1].tree ?? tree;

  function demandMutable(path: string): void {
    const mounted = mountAt(path)?.[1];
    if (mounted?.readOnly) throw fileError('EROFS', path);
    if (mounted) return;
    if (tree.readOnly && !WRITABLE_ROOTS.some((prefix) => path.startsWith(`${prefix}/`)))
      throw fileError('EROFS', path);
  }

  /**
   * What it takes to change the name: the directory must be writable, and if it is sticky, one of both one's
   * own.
   */
  function demandName(user: User, { parent, node, path }: Place): void {
    if (tree.mounts.has(path)) throw fileError('EBUSY', path);
    demandMutable(path);
    demand(user, parent, 2, path);
    if (!(parent.mode & 0o1000) || !node || isRoot(user)) return;
    if (node.uid !== user.uid && parent.uid !== user.uid) throw fileError('EPERM', path);
  }

  function release(node: FileNode, account: FileTree): void {
    node.links--;
    if (node.type === 'directory') for (const child of node.entries.values()) release(child, account);
    if (node.type === 'file' && node.links === 0) account.usedBytes -= node.size;
  }

  const tree: FileTree = {
    root,
    usedBytes: 0,
    limitBytes: null,
    readOnly: false,
    mounts: new Map(),
    listeners: new Set(),
    find,
    get(user, path, options) {
      const place = find(user, path, options);
      if (!place.node) throw fileError('ENOENT', path);
      return { ...place, node: place.node };
    },
    demand,
    demandMutable,
    makeDirectory(user, path, mode = 0o755) {
      checkPath(path);
      let made = false;
      const parts = partsOf(path);
      for (let depth = 1; depth <= parts.length; depth++) {
        const upTo = `/${parts.slice(0, depth).join('/')}`;
        const place = find(user, upTo);
        const last = depth === parts.length;
        if (place.node && place.node.type !== 'directory') throw fileError(last ? 'EEXIST' : 'ENOTDIR', path);
        made = !place.node;
        if (made) tree.put(user, place, newDirectory(user, last ? mode : 0o755));
      }
      return made;
    },
    put(user, place, node) {
      demandName(user, place);
      const old = place.parent.entries.get(place.name);
      place.parent.entries.set(place.name, node);
      place.parent.modifiedAtMs = Date.now();
      if (old && old !== node) release(old, accountOf(place.path));
      tree.emit(old ? 'modified' : 'created', place.path);
    },
    unlink(user, place) {
      if (place.path === '/') throw fileError('EBUSY', '/');
      demandName(user, place);
      place.parent.entries.delete(place.name);
      place.parent.modifiedAtMs = Date.now();
      release(place.node!, accountOf(place.path));
      tree.emit('removed', place.path);
    },
    rename(user, from, to) {
      demandName(user, from);
      demandName(user, to);
      if (accountOf(from.path) !== accountOf(to.path)) throw fileError('EXDEV', to.path);
      from.parent.entries.delete(from.name);
      to.parent.entries.set(to.name, from.node);
      if (to.node) release(to.node, accountOf(to.path));
      from.parent.modifiedAtMs = to.parent.modifiedAtMs = Date.now();
      tree.emit('removed', from.path);
      tree.emit('renamed', to.path);
    },
    reserve(bytes, path) {
      const account = accountOf(path);
      if (bytes > 0 && account.limitBytes !== null && account.usedBytes + bytes > account.limitBytes)
        throw fileError('ENOSPC', path);
      account.usedBytes += bytes;
    },
    append(file, data, path) {
      tree.reserve(data.length, path);
      const size = file.size + data.length;
      if (size > file.data.length) {
        const grown = new Uint8Array(Math.max(size, file.data.length * 2));
        grown.set(file.data.subarray(0, file.size));
        file.data = grown;
      }
      file.data.set(data, file.size);
      file.size = size;
      file.modifiedAtMs = Date.now();
    },
    emit(type, path) {
      for (const listener of tree.listeners) listener(type, path);
    },
  };
  return tree;
}

function checkPath(path: string): void {
  if (!path.startsWith('/') || path.includes('\u0000')) throw fileError('EINVAL', path);
  if (Buffer.byteLength(path) > 4095) throw fileError('ENAMETOOLONG', path);
  if (path.split('/').some((part) => Buffer.byteLength(part) > 255)) throw fileError('ENAMETOOLONG', path);
}

/** The order of names in every listing. */
export const byBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

export const partsOf = (path: string): string[] =>
  path.split('/').filter((part) => part !== '' && part !== '.');

const pathOf = (trail: { name: string }[], name: string) =>
  `/${[...trail.map((step) => step.name), name].join('/')}`;

export function infoOf(node: FileNode, path: string): FileInfo {
  const trimmed = path === '/' ? '/' : path.replace(/\/+$/, '');
  const size =
    node.type === 'file' ? node.size : node.type === 'symlink' ? Buffer.byteLength(node.target) : 0;
  return {
    name: trimmed.slice(trimmed.lastIndexOf('/') + 1),
    path: trimmed,
    type: node.type,
    sizeBytes: size,
    mode: node.mode,
    uid: node.uid,
    gid: node.gid,
    modifiedAtMs: node.modifiedAtMs,
    ...(node.type === 'symlink' && { target: node.target }),
  };
}

/** Writes a file as root, for what every sandbox starts with. */
export function plant(tree: FileTree, path: string, content: string | Uint8Array, mode = 0o644): void {
  const root: User = { uid: 0, gid: 0, name: 'root', home: '/root' };
  const parent = path.slice(0, path.lastIndexOf('/'));
  if (parent) tree.makeDirectory(root, parent);
  const file = newFile(root, mode);
  tree.append(file, Buffer.from(content), path);
  tree.put(root, tree.find(root, path), file);
}
