/** The files of the sandbox, as the protocol asks for them: paths are `file:` URIs, content is base64. */
import { posix } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { CayError, isCayError, type FileInfo, type Sandbox } from '@cay/sdk/client';
import { systemReason } from '@cay/sdk/system-error';
import { invalid, RpcError } from './rpc-error.ts';

const MOST_READ = 64 * 1024 * 1024;
const MOST_BLOCK = 4 * 1024 * 1024;
const MOST_HANDLES = 256;

const MOST_WALKED = 50_000;

/** Links to directories are not followed, whatever is asked. */
interface WalkOptions {
  maxDepth: number;
  maxDirectories: number;
  maxEntries: number;
  pruneHiddenDirectories?: boolean;
}

export type Params = Record<string, unknown>;

/** The path of a `file:` URI. */
export function pathOf(uri: unknown): string {
  try {
    if (typeof uri === 'string' && uri.startsWith('file:')) return fileURLToPath(uri, { windows: false });
  } catch {
    // Said below.
  }
  throw new RpcError(-32602, `${JSON.stringify(uri)} is not a path as a file: URI`);
}

export const uriOf = (path: string) => pathToFileURL(path, { windows: false }).href;

export function openFileSystem(sandbox: Sandbox): Record<string, (params: Params) => Promise<object>> {
  const { files } = sandbox;
  const handles = new Map<string, string>();

  async function entries(path: string): Promise<FileInfo[]> {
    const found: FileInfo[] = [];
    for await (const file of files.list(path)) {
      if (found.length >= MOST_WALKED) throw invalid(`"${path}" has more than ${MOST_WALKED} entries`);
      found.push(file);
    }
    return found;
  }

  async function run(argv: string[], path: string): Promise<string> {
    const { exitCode, stdout, stderr } = await sandbox.exec(argv);
    if (exitCode === 0) return stdout;
    if (!(await files.exists(path))) throw new CayError('not_found', `"${path}" does not exist`);
    throw invalid(stderr.trim());
  }

  return {
    async 'fs/readFile'({ path: uri }) {
      const path = pathOf(uri);
      const { sizeBytes } = await files.stat(path, { follow: true });
      const tooLong = (bytes: number) => invalid(`"${path}" has ${bytes} bytes: read it in blocks`);
      if (sizeBytes > MOST_READ) throw tooLong(sizeBytes);
      // Code in the sandbox may have put another file there.
      const data = await files.read(path, { length: MOST_READ + 1 });
      if (data.length > MOST_READ) throw tooLong(data.length);
      return { dataBase64: Buffer.from(data).toString('base64') };
    },
    async 'fs/open'({ handleId, path: uri }) {
      if (typeof handleId !== 'string') throw new RpcError(-32602, '"handleId" must be a string');
      if (handles.size >= MOST_HANDLES) throw invalid(`There are ${MOST_HANDLES} open files already`);
      const path = pathOf(uri);
      await files.stat(path, { follow: true });
      handles.set(handleId, path);
      return { handleId };
    },
    async 'fs/readBlock'({ handleId, offset, len }) {
      const path = handles.get(handleId as string);
      if (path === undefined) throw invalid(`There is no open file "${String(handleId)}"`);
      const length = Math.min(Number(len), MOST_BLOCK);
      const { sizeBytes } = await files.stat(path, { follow: true });
      if (Number(offset) >= sizeBytes || length <= 0) return { chunk: '', eof: Number(offset) >= sizeBytes };
      const data = await files.read(path, { offset: Number(offset), length });
      return {
        chunk: Buffer.from(data).toString('base64'),
        eof: Number(offset) + data.length >= sizeBytes,
      };
    },
    async 'fs/close'({ handleId }) {
      handles.delete(handleId as string);
      return {};
    },
    async 'fs/writeFile'({ path, dataBase64 }) {
      await files.write(pathOf(path), Buffer.from(String(dataBase64), 'base64'));
      return {};
    },
    async 'fs/createDirectory'({ path: uri, recursive }) {
      const path = pathOf(uri);
      if (recursive !== true) await files.stat(posix.dirname(path));
      const made = await files.mkdir(path);
      if (!made && recursive !== true) throw invalid(`"${path}" exists already`);
      return {};
    },
    async 'fs/getMetadata'({ path, followSymlinks }) {
      const { type, sizeBytes, modifiedAtMs } = await files.stat(pathOf(path), {
        follow: followSymlinks !== false,
      });
      return {
        isDirectory: type === 'directory',
        isFile: type === 'file',
        isSymlink: type === 'symlink',
        size: sizeBytes,
        // Nobody knows when a file was made: gVisor and many filesystems do not record it.
        createdAtMs: 0,
        modifiedAtMs,
      };
    },
    async 'fs/canonicalize'({ path: uri }) {
      const path = pathOf(uri);
      return { path: uriOf((await run(['realpath', '-e', '--', path], path)).replace(/\n$/, '')) };
    },
    async 'fs/readDirectory'({ path }) {
      return {
        entries: (await entries(pathOf(path))).map(({ name, type }) => ({
          fileName: name,
          isDirectory: type === 'directory',
          isFile: type === 'file',
        })),
      };
    },
    async 'fs/walk'({ path: uri, options }) {
      const root = pathOf(uri);
      const { maxDepth, maxDirectories, maxEntries, pruneHiddenDirectories } = (options ?? {}) as WalkOptions;
      const found: { path: string; kind: 'directory' | 'file' }[] = [];
      const errors: { path: string; message: string }[] = [];
      const waiting = [{ path: root, depth: 0 }];
      let truncated = false;
      for (let read = 0; waiting.length > 0 && !truncated; read++) {
        if (read >= Math.min(maxDirectories, MOST_WALKED)) {
          truncated = true;
          break;
        }
        const { path, depth } = waiting.shift()!;
        try {
          for await (const { name, path: below, type } of files.list(path)) {
            if (type !== 'directory' && type !== 'file') continue;
            if (type === 'directory' && pruneHiddenDirectories && name.startsWith('.')) continue;
            if (found.length >= Math.min(maxEntries, MOST_WALKED)) {
              truncated = true;
              break;
            }
            found.push({ path: uriOf(below), kind: type });
            if (type === 'directory' && depth + 1 < maxDepth) waiting.push({ path: below, depth: depth + 1 });
          }
        } catch (error) {
          if (path === root) throw error;
          errors.push({ path: uriOf(path), message: systemReason(error) });
        }
      }
      return { entries: found, errors, truncated };
    },
    async 'fs/remove'({ path: uri, recursive, force }) {
      try {
        await files.remove(pathOf(uri), { recursive: recursive !== false });
      } catch (error) {
        if (!(force !== false && isCayError(error, 'not_found'))) throw error;
      }
      return {};
    },
    async 'fs/copy'({ sourcePath, destinationPath, recursive }) {
      const source = pathOf(sourcePath);
      const flags = recursive === true ? ['-RT'] : ['-T'];
      await run(['cp', ...flags, '--', source, pathOf(destinationPath)], source);
      return {};
    },
  };
}
