import { setImmediate } from 'node:timers/promises';
import { CayError, type FileInfo } from '@cay/sdk/protocol';
import type { CallOptions, Files, ReachOptions } from '../../guest/guest.ts';
import { setMode, setOwner } from './change-attributes.ts';
import { fileError } from './errno.ts';
import { contentOf, newSymlink } from './file-node.ts';
import { byBytes, infoOf, type FileTree } from './file-tree.ts';
import { watchTree } from './file-watch.ts';
import type { Gate } from './gate.ts';
import { packTree } from './tar-pack.ts';
import { unpackTree } from './tar-unpack.ts';
import { lookUpUser, type User } from './users.ts';
import { writeFile } from './write-file.ts';

const CHUNK = 64 * 1024;

export interface FilesOptions {
  tree: FileTree;
  /** Looked up at each call, since `/etc/passwd` may change. */
  user: string | User;
  /** Aborted when the sandbox goes away, with the error that pending calls reject with. */
  gone: AbortSignal;
  gate: Gate;
}

/**
 * The Files contract over a tree in memory. Every step between two awaits is atomic, which is what makes this
 * short.
 */
export function memoryFiles({ tree, user: asked, gone, gate }: FilesOptions): Files {
  async function begin(options: ReachOptions = {}): Promise<User> {
    await check(options);
    const user = typeof asked === 'string' ? lookUpUser(tree, asked) : asked;
    return options.reach ? { ...user, reach: true } : user;
  }

  async function check({ signal }: CallOptions): Promise<void> {
    await gate.pass(gone, signal);
    if (gone.aborted) throw gone.reason;
    if (signal?.aborted) throw new CayError('cancelled', 'The caller gave up', { cause: signal.reason });
  }

  async function* listed(
    user: User,
    path: string,
    depth: number,
    options: CallOptions,
  ): AsyncIterable<FileInfo> {
    const { node } = tree.get(user, path);
    if (node.type !== 'directory') throw fileError('ENOTDIR', path);
    tree.demand(user, node, 4, path);
    for (const name of [...node.entries.keys()].sort(byBytes)) {
      await check(options);
      const child = node.entries.get(name);
      if (!child) continue;
      const childPath = `${path === '/' ? '' : path}/${name}`;
      yield infoOf(child, childPath);
      if (depth > 1 && child.type === 'directory') yield* listed(user, childPath, depth - 1, options);
    }
  }

  return {
    async stat(path, options = {}) {
      const { node } = tree.get(await begin(options), path, { follow: options.follow ?? false });
      return infoOf(node, path);
    },

    async *list(path, options = {}) {
      yield* listed(
        await begin(options),
        path.length > 1 ? path.replace(/\/+$/, '') : path,
        options.depth ?? 1,
        options,
      );
    },

    async read(path, options = {}) {
      const user = await begin(options);
      const { offset = 0, length = Number.MAX_SAFE_INTEGER } = options;
      if (!Number.isSafeInteger(offset) || offset < 0 || !Number.isSafeInteger(length) || length < 0)
        throw fileError('EINVAL', path);
      const { node } = tree.get(user, path);
      tree.demand(user, node, 4, path);
      if (node.type === 'directory') throw fileError('EISDIR', path);
      const bytes =
        node.type === 'file' ? contentOf(node).subarray(offset, offset + length) : new Uint8Array(0);
      async function* data() {
        if (node.type === 'char' && node.device === 'zero') yield* zeros(length, () => check(options));
        for (let at = 0; at < bytes.length; at += CHUNK) {
          await check(options);
          yield bytes.slice(at, at + CHUNK);
        }
      }
      return { info: infoOf(node, path), data: data() };
    },

    async write(path, data, options = {}) {
      const user = await begin(options);
      return writeFile({ tree, user, check: () => check(options) }, path, data, options);
    },

    async mkdir(path, options = {}) {
      return tree.makeDirectory(await begin(options), path, options.mode);
    },

    async move(from, to, options = {}) {
      const user = await begin(options);
      const source = tree.get(user, from, { follow: false });
      const target = tree.find(user, to, { follow: false });
      if (target.node && !options.overwrite) throw fileError('EEXIST', to);
      if (target.node === source.node) return;
      if (`${target.path}/`.startsWith(`${source.path}/`)) throw fileError('EINVAL', to);
      if (target.node?.type === 'directory') {
        if (source.node.type !== 'directory') throw fileError('EISDIR', to);
        if (target.node.entries.size > 0) throw fileError('ENOTEMPTY', to);
      }
      tree.rename(user, source, target);
    },

    async remove(path, options = {}) {
      const user = await begin(options);
      const place = tree.get(user, path, { follow: false });
      if (place.node.type === 'directory' && place.node.entries.size > 0 && !options.recursive)
        throw fileError('ENOTEMPTY', path);
      tree.unlink(user, place);
    },

    async chmod(path, mode, options = {}) {
      const user = await begin(options);
      setMode({ tree, user, recursive: options.recursive ?? false }, path, mode);
    },

    async chown(path, owner, options = {}) {
      const user = await begin(options);
      setOwner({ tree, user, recursive: options.recursive ?? false }, path, owner);
    },

    async symlink(path, target, options = {}) {
      const user = await begin(options);
      const place = tree.find(user, path, { follow: false });
      if (place.node) throw fileError('EEXIST', path);
      if (target === '' || target.includes('\u0000')) throw fileError('EINVAL', path);
      tree.put(user, place, newSymlink(user, target));
    },

    async xattrs(path, set = {}, options = {}) {
      const user = await begin(options);
      const { node, path: realPath } = tree.get(user, path);
      tree.demand(user, node, 4, path);
      for (const [name, value] of Object.entries(set)) {
        tree.demand(user, node, 2, path);
        if (value === null) node.xattrs.delete(name);
        else node.xattrs.set(name, value.slice());
        tree.emit('attributes', realPath);
      }
      return Object.fromEntries(node.xattrs);
    },

    async watch(path, options = {}) {
      const user = await begin(options);
      const { node, path: realPath } = tree.get(user, path);
      tree.demand(user, node, 4, path);
      return watchTree(tree, {
        path,
        realPath,
        recursive: options.recursive ?? false,
        signals: [gone, options.signal],
      });
    },

    async tar(path, options = {}) {
      return packTree(tree, await begin(options), path, options.paths);
    },

    async untar(path, data, options = {}) {
      const user = await begin(options);
      return unpackTree(tree, user, path, guarded(data, options));
    },
  };

  async function* guarded(data: AsyncIterable<Uint8Array>, options: CallOptions): AsyncIterable<Uint8Array> {
    for await (const part of data) {
      await check(options);
      yield part;
    }
  }
}

/**
 * What `/dev/zero` gives. It pauses after each chunk, or a reader that never stops would stop everyone else.
 */
async function* zeros(length: number, check: () => Promise<void>): AsyncIterable<Uint8Array> {
  for (let left = length; left > 0; left -= CHUNK) {
    await setImmediate();
    await check();
    yield new Uint8Array(Math.min(left, CHUNK));
  }
}
