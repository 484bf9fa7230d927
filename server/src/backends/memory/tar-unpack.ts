import { CayError } from '@cay/sdk/protocol';
import { newDirectory, newFile, newSymlink, type Directory, type FileNode } from './file-node.ts';
import { partsOf, type FileTree, type Place } from './file-tree.ts';
import type { User } from './users.ts';

const BLOCK = 512;
const MAX_EXTENSION = 1024 * 1024;

const refuse = (why: string) => new CayError('invalid_argument', `Cannot unpack the archive: ${why}`, { details: { errno: 'EINVAL' } });

/** Hands out exactly as many bytes as are asked for. */
function byteReader(data: AsyncIterable<Uint8Array>) {
  const source = data[Symbol.asyncIterator]();
  let held: Uint8Array = new Uint8Array(0);
  return {
    /** Up to `length` bytes; fewer only at the end. */
    async some(length: number): Promise<Uint8Array> {
      while (held.length === 0) {
        const next = await source.next();
        if (next.done) return held;
        held = next.value;
      }
      const part = held.subarray(0, length);
      held = held.subarray(part.length);
      return part;
    },
    /** Precondition: `length` is small. */
    async exactly(length: number): Promise<Buffer> {
      const parts: Uint8Array[] = [];
      let missing = length;
      while (missing > 0) {
        const part = await this.some(missing);
        if (part.length === 0) break;
        parts.push(part);
        missing -= part.length;
      }
      if (missing > 0 && missing < length) throw refuse('it is truncated');
      return Buffer.concat(parts);
    },
    close: () => source.return?.(),
  };
}

/** Unpacks ustar, pax and GNU archives. Nothing that an archive says leads outside `path`. */
export async function unpackTree(
  tree: FileTree,
  user: User,
  path: string,
  data: AsyncIterable<Uint8Array>,
): Promise<{ entries: number; bytes: number }> {
  tree.makeDirectory(user, path);
  const { node: top, path: topPath } = tree.get(user, path);
  if (top.type !== 'directory') throw refuse(`${JSON.stringify(path)} is not a directory`);
  const reader = byteReader(data);
  const done = { entries: 0, bytes: 0 };
  let extended: Record<string, string> = {};

  /** Walks below the top without following a single symlink; makes directories that are missing. */
  function place(name: string): Place {
    const parts = partsOf(name);
    if (name.startsWith('/') || parts.includes('..')) throw refuse(`entry ${JSON.stringify(name)} would leave the directory`);
    let parent: Directory = top as Directory;
    let at = topPath === '/' ? '' : topPath;
    for (const part of parts.slice(0, -1)) {
      tree.demand(user, parent, 1, at);
      const next: FileNode | undefined = parent.entries.get(part);
      if (next && next.type !== 'directory') throw refuse(`entry ${JSON.stringify(name)} leads through a ${next.type}`);
      const made: Directory = next ?? newDirectory(user);
      if (!next) tree.put(user, { parent, name: part, node: undefined, path: `${at}/${part}` }, made);
      parent = made;
      at = `${at}/${part}`;
    }
    const last = parts.at(-1) ?? '';
    return { parent, name: last, node: parent.entries.get(last), path: `${at}/${last}` };
  }

  async function unpack(type: string, name: string, link: string, size: number, mode: number): Promise<void> {
    if (partsOf(name).length === 0 && type === '5') return;
    const to = place(name);
    if (to.name === '') throw refuse(`entry ${JSON.stringify(name)} has no name`);
    if (type !== '5' && to.node?.type === 'directory') throw refuse(`entry ${JSON.stringify(name)} would replace a directory`);
    if (type === '5') {
      if (to.node?.type === 'directory') to.node.mode = mode;
      else tree.put(user, to, newDirectory(user, mode));
    } else if (type === '2') {
      if (link === '') throw refuse(`symlink ${JSON.stringify(name)} has no target`);
      tree.put(user, to, newSymlink(user, link));
    } else if (type === '1') {
      const target = place(link).node;
      if (target?.type !== 'file') throw refuse(`hard link ${JSON.stringify(name)} has no file to link to`);
      target.links++;
      tree.put(user, to, target);
    } else if (type === '0' || type === '\u0000' || type === '7') {
      const file = newFile(user, mode);
      try {
        while (file.size < size) {
          const part = await reader.some(size - file.size);
          if (part.length === 0) throw refuse('it is truncated');
          tree.append(file, part, to.path);
        }
        // Others may have changed the tree while the content was on its way.
        tree.put(user, place(name), file);
      } catch (error) {
        tree.reserve(-file.size, to.path);
        throw error;
      }
      done.bytes += size;
    } else {
      throw refuse(`entry ${JSON.stringify(name)} is of a type that is not allowed`);
    }
  }

  try {
    for (;;) {
      const head = await reader.exactly(BLOCK);
      // Zeros are the mark of the end; so is the end itself, which some writers leave it at.
      if (head.every((byte) => byte === 0)) return done;
      checkSum(head);
      const type = String.fromCharCode(head[156]!);
      const size = extended['size'] === undefined ? octal(head, 124, 12) : Number(extended['size']);
      if (!Number.isSafeInteger(size) || size < 0) throw refuse('a size is wrong');
      const padding = (BLOCK - (size % BLOCK)) % BLOCK;
      if ('xgLK'.includes(type)) {
        if (size > MAX_EXTENSION) throw refuse('an extended header is too long');
        const body = await reader.exactly(size);
        await reader.exactly(padding);
        if (type === 'x') extended = { ...extended, ...recordsOf(body) };
        if (type === 'L') extended = { ...extended, path: text(body, 0, body.length) };
        if (type === 'K') extended = { ...extended, linkpath: text(body, 0, body.length) };
        continue;
      }
      const prefix = text(head, 257, 6) === 'ustar' && head[262] === 0 ? text(head, 345, 155) : '';
      const name = extended['path'] ?? (prefix ? `${prefix}/${text(head, 0, 100)}` : text(head, 0, 100));
      const link = extended['linkpath'] ?? text(head, 157, 100);
      extended = {};
      if (name.includes('\u0000')) throw refuse('a name contains a NUL');
      const mode = octal(head, 100, 8) & (user.uid === 0 ? 0o7777 : 0o777);
      const isFile = type === '0' || type === '\u0000' || type === '7';
      await unpack(type, name, link, isFile ? size : 0, mode);
      if (isFile && (await reader.exactly(padding)).length < padding) throw refuse('it is truncated');
      done.entries++;
    }
  } finally {
    await reader.close();
  }
}

function checkSum(head: Buffer): void {
  let sum = 0;
  for (let at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? 32 : head[at]!;
  if (sum !== octal(head, 148, 8)) throw refuse('a header is broken');
}

function octal(head: Buffer, at: number, length: number): number {
  const digits = text(head, at, length).trim();
  if (!/^[0-7]*$/.test(digits)) throw refuse('a number is broken');
  return digits === '' ? 0 : Number.parseInt(digits, 8);
}

function text(bytes: Buffer, at: number, length: number): string {
  const field = bytes.subarray(at, at + length);
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end < 0 ? field.length : end);
}

function recordsOf(body: Buffer): Record<string, string> {
  const records: Record<string, string> = Object.create(null);
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const length = Number(body.toString('latin1', at, space < 0 ? at : space));
    const equals = body.indexOf(0x3d, space);
    if (space < 0 || equals < 0 || !Number.isSafeInteger(length) || length <= 0 || at + length > body.length)
      throw refuse('a pax record is broken');
    records[body.toString('utf8', space + 1, equals)] = body.toString('utf8', equals + 1, at + length - 1);
    at += length;
  }
  return records;
}
