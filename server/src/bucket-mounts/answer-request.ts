/** One message of the kernel: what it asks of the files, and the answer's body. */
import { constants } from 'node:os';
import type { BucketFiles } from './bucket-files.ts';
import {
  attributesAnswer,
  direntAnswer,
  entryAnswer,
  openAnswer,
  statfsAnswer,
  writeAnswer,
} from './fuse/answers.ts';
import { FuseError } from './fuse/fuse-error.ts';
import { KEEP_CACHE, Opcode } from './fuse/opcodes.ts';
import { nameAt, number32, number64, type FuseRequest } from './fuse/request.ts';

const { errno } = constants;
const MOST_DATA = 1024 * 1024;
const NOTHING: Buffer[] = [];

type Answerer = (files: BucketFiles, request: FuseRequest, repeated: boolean) => Promise<Buffer[]>;

const ANSWERERS: Record<number, Answerer> = {
  async [Opcode.lookup](files, { node, body }) {
    return [entryAnswer(await files.lookup(node, nameAt(body, 0).name))];
  },
  async [Opcode.getattr](files, { node }) {
    return [attributesAnswer(await files.getattr(node))];
  },
  async [Opcode.setattr](files, { node, body }) {
    const valid = number32(body, 0);
    const size = number64(body, 16);
    const given = { valid, size, mode: number32(body, 68), uid: number32(body, 76), gid: number32(body, 80) };
    return [attributesAnswer(await files.open.setattr(node, given))];
  },
  async [Opcode.open](files, { node, body }) {
    const { handle, keepsCache } = await files.open.open(node, number32(body, 0));
    return [openAnswer(handle, keepsCache ? KEEP_CACHE : 0)];
  },
  async [Opcode.create](files, { node, body }) {
    const { attributes, handle } = await files.open.create(node, nameAt(body, 16).name, number32(body, 0));
    return [entryAnswer(attributes), openAnswer(handle, 0)];
  },
  async [Opcode.mknod](files, { node, body }) {
    const S_IFMT = 0o170000;
    const S_IFREG = 0o100000;
    if ((number32(body, 0) & S_IFMT) !== S_IFREG) throw new FuseError(errno.EOPNOTSUPP);
    const { attributes } = await files.open.create(node, nameAt(body, 16).name, 0o200);
    // It is closed at once, so that it is an object.
    try {
      await files.open.flush(attributes.node);
    } finally {
      await files.open.release(attributes.node);
    }
    return [entryAnswer(attributes)];
  },
  async [Opcode.read](files, { node, body }) {
    const length = Math.min(number32(body, 16), MOST_DATA);
    return files.open.read(node, number64(body, 8), length);
  },
  async [Opcode.write](files, { node, body }) {
    const length = number32(body, 16);
    const data = body.subarray(40, 40 + length);
    if (data.length !== length) throw new FuseError(errno.EINVAL);
    await files.open.write(node, data, number64(body, 8));
    return [writeAnswer(length)];
  },
  async [Opcode.flush](files, { node, body }) {
    await files.open.flush(node, number64(body, 0));
    return NOTHING;
  },
  async [Opcode.fsync](files, { node }) {
    await files.open.flush(node);
    return NOTHING;
  },
  async [Opcode.release](files, { node, body }) {
    await files.open.release(node, number64(body, 0));
    return NOTHING;
  },
  async [Opcode.opendir](files, { node }) {
    return [openAnswer(await files.directories.opendir(node), 0)];
  },
  [Opcode.readdir]: (files, request) => entries(files, request, false),
  [Opcode.readdirplus]: (files, request) => entries(files, request, true),
  async [Opcode.releasedir](files, { body }) {
    files.directories.releasedir(number64(body, 0));
    return NOTHING;
  },
  [Opcode.fsyncdir]: async () => NOTHING,
  async [Opcode.mkdir](files, { node, body }, repeated) {
    return [entryAnswer(await files.directories.mkdir(node, nameAt(body, 8).name, repeated))];
  },
  async [Opcode.unlink](files, { node, body }, repeated) {
    await files.unlink(node, nameAt(body, 0).name, repeated);
    return NOTHING;
  },
  async [Opcode.rmdir](files, { node, body }, repeated) {
    await files.rmdir(node, nameAt(body, 0).name, repeated);
    return NOTHING;
  },
  [Opcode.rename]: (files, request, repeated) => rename(files, request, 8, 0, repeated),
  [Opcode.rename2]: (files, request, repeated) =>
    rename(files, request, 16, number32(request.body, 8), repeated),
  [Opcode.statfs]: async () => [statfsAnswer()],
  // A bucket has neither of them.
  [Opcode.symlink]: refused,
  [Opcode.link]: refused,
  [Opcode.fallocate]: refused,
};

/** The answer's body. Rejects with what has an error number. */
export async function answerRequest(
  files: BucketFiles,
  request: FuseRequest,
  repeated: boolean,
): Promise<Buffer[]> {
  const answerer = ANSWERERS[request.opcode];
  // The kernel then asks no more, and does without.
  if (!answerer) throw new FuseError(errno.ENOSYS);
  return answerer(files, request, repeated);
}

/** Those that have no answer. Returns whether it was one. Never throws. */
export function takeNote(files: BucketFiles, { opcode, node, body }: FuseRequest): boolean {
  if (opcode === Opcode.forget) {
    if (body.length >= 8) files.nodes.forget(node, timesAt(body, 0));
  } else if (opcode === Opcode.batchForget) {
    const given = body.length >= 8 ? number32(body, 0) : 0;
    const count = Math.min(given, Math.floor((body.length - 8) / 16));
    for (let index = 0; index < count; index++)
      files.nodes.forget(timesAt(body, 8 + index * 16), timesAt(body, 16 + index * 16));
  } else return false;
  return true;
}

const timesAt = (body: Buffer, at: number) => Number(body.readBigUInt64LE(at));

async function refused(): Promise<Buffer[]> {
  throw new FuseError(errno.EOPNOTSUPP);
}

async function entries(files: BucketFiles, { node, body }: FuseRequest, plus: boolean): Promise<Buffer[]> {
  const [handle, offset] = [number64(body, 0), number64(body, 8)];
  let room = Math.min(number32(body, 16), MOST_DATA);
  const found: Buffer[] = [];
  await files.directories.readdir(node, { handle, offset, plus }, (entry, next) => {
    const bytes = direntAnswer(entry, next, plus);
    if (bytes.length > room) return false;
    room -= bytes.length;
    found.push(bytes);
    return true;
  });
  return found;
}

async function rename(
  files: BucketFiles,
  { node, body }: FuseRequest,
  at: number,
  flags: number,
  repeated: boolean,
): Promise<Buffer[]> {
  const from = nameAt(body, at);
  const to = nameAt(body, from.end);
  const target = { parent: number64(body, 0), name: to.name };
  await files.renames.rename({ parent: node, name: from.name }, target, { flags, repeated });
  return NOTHING;
}
