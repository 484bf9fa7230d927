/**
 * One connection of a pump: reads the kernel's messages, has them answered side by side, and writes the
 * answers.
 */
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { inBackground } from '../lib/in-background.ts';
import { Semaphore } from '../lib/semaphore.ts';
import { answerRequest, takeNote } from './answer-request.ts';
import type { BucketFiles } from './bucket-files.ts';
import { header } from './fuse/answers.ts';
import { errnoOf } from './fuse/fuse-error.ts';
import { Opcode } from './fuse/opcodes.ts';
import { readRequest, type FuseRequest } from './fuse/request.ts';

const REPEATED = 1;
const FRAME_HEADER = 8;
const MOST_FRAME = 1024 * 1024 + 128 * 1024;
/** Messages that are answered at once. The pump and the kernel hold the others. */
const AT_ONCE = 64;
const LOOK_AGAIN_MS = 500;
/** Messages that were taken and are not answered. The pump holds no more. */
const MOST_ACTIVE = 2048;

/** Frames of a pump, in order. Ends with the connection, and destroys it for one that is too long. */
export async function* framesOf(socket: Socket): AsyncGenerator<{ flags: number; message: Buffer }, void> {
  let chunks: Buffer[] = [];
  let length = 0;
  let needed = FRAME_HEADER;
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    length += chunk.length;
    while (length >= needed) {
      const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, length);
      const size = bytes.readUInt32LE(0);
      if (size < FRAME_HEADER || size > MOST_FRAME) {
        socket.destroy();
        return;
      }
      chunks = [bytes];
      needed = size;
      if (length < size) break;
      yield { flags: bytes.readUInt32LE(4), message: bytes.subarray(FRAME_HEADER, size) };
      chunks = length > size ? [bytes.subarray(size)] : [];
      length -= size;
      needed = FRAME_HEADER;
    }
  }
}

/** Answers until the connection ends. Never rejects. */
export async function serveMount(
  socket: Socket,
  frames: AsyncIterable<{ flags: number; message: Buffer }>,
  files: BucketFiles,
  { turns: ofProject, onError }: { turns: Semaphore; onError(error: unknown): void },
): Promise<void> {
  const turns = new Semaphore(AT_ONCE);
  /** Those that are being answered, by number. */
  const active = new Map<bigint, { request: FuseRequest; interrupted: boolean }>();
  const timer = setInterval(() => {
    for (const one of active.values()) if (one.interrupted) endInterrupted(one.request);
  }, LOOK_AGAIN_MS).unref();

  function send(unique: Buffer, error: number, body: readonly Buffer[] = []): void {
    if (!active.delete(unique.readBigUInt64LE()) || socket.destroyed) return;
    const length = body.reduce((sum, part) => sum + part.length, 0);
    socket.cork();
    socket.write(header(unique, error, length));
    for (const part of body) socket.write(part);
    socket.uncork();
  }

  /** The process has ended: it is let go, and what it asked for goes on. */
  function endInterrupted({ unique, pid }: FuseRequest): void {
    if (isEnding(pid)) send(unique, constants.errno.EINTR);
  }

  async function answer(request: FuseRequest, repeated: boolean): Promise<void> {
    try {
      const body = await turns.run(() => ofProject.run(() => answerRequest(files, request, repeated)));
      send(request.unique, 0, body);
    } catch (error) {
      send(request.unique, errnoOf(error));
    }
  }

  function take(message: Buffer, flags: number): void {
    const request = readRequest(message);
    if (!request || request.opcode === Opcode.destroy || takeNote(files, request)) return;
    if (request.opcode === Opcode.interrupt) {
      const one = request.body.length < 8 ? undefined : active.get(request.body.readBigUInt64LE());
      if (!one) return;
      one.interrupted = true;
      endInterrupted(one.request);
      return;
    }
    const interrupted = request.opcode === Opcode.flush || request.opcode === Opcode.fsync;
    const isTooMuch = active.size >= MOST_ACTIVE;
    active.set(request.unique.readBigUInt64LE(), { request, interrupted });
    if (isTooMuch) return send(request.unique, constants.errno.EIO);
    inBackground(answer(request, (flags & REPEATED) !== 0), onError);
  }

  try {
    for await (const { flags, message } of frames) {
      try {
        take(message, flags);
      } catch (error) {
        onError(error);
      }
    }
  } catch {
    // The pump has gone, or dials again.
  } finally {
    clearInterval(timer);
    socket.destroy();
  }
}

/** Whether a process was killed or is ending: nothing that it gets is used. */
function isEnding(pid: number): boolean {
  const PF_EXITING = 4;
  const SIGKILL = 1n << 8n;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X' || (Number(fields[6]) & PF_EXITING) !== 0) return true;
    const status = readFileSync(`/proc/${pid}/status`, 'latin1');
    const pending = [...status.matchAll(/^(?:Sig|Shd)Pnd:\s+([0-9a-f]+)$/gm)];
    return pending.some(([, mask]) => (BigInt(`0x${mask}`) & SIGKILL) !== 0n);
  } catch {
    return true;
  }
}
