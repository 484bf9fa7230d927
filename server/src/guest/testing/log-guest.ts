/**
 * A guest with one command, `log`, whose output is known in advance. It obeys credit, and answers
 * `exec` and `attach` from any offset, so that a reader's connections can be cut as a test likes.
 */
import { Buffer } from 'node:buffer';
import type { Socket } from 'node:net';
import { decodeCborMap } from '../cbor.ts';
import { FRAME, INITIAL_CREDIT } from '../frame.ts';
import { ScriptedGuest } from './scripted-guest.ts';

interface Reader {
  at: number;
  credit: number;
  ended: boolean;
}

export interface LogGuestOptions {
  output: Buffer;
  /** The size of the next DATA frame. */
  pieceBytes: () => number;
  boot?: Buffer;
  /** Called after each DATA frame: may destroy the socket. */
  onSent?: (socket: Socket) => void;
  /** Whether the command ends after its output. Default true. */
  ends?: boolean;
  onInput?: (bytes: Buffer) => void;
}

export function logGuest(
  socket: Socket,
  { output, pieceBytes, boot, onSent, ends = true, onInput }: LogGuestOptions,
): ScriptedGuest {
  const guest = new ScriptedGuest(socket);
  const readers = new Map<number, Reader>();

  const pump = (stream: number, reader: Reader) => {
    while (reader.at < output.length && reader.credit > 0 && !socket.destroyed) {
      const piece = output.subarray(reader.at, reader.at + pieceBytes());
      reader.at += piece.length;
      reader.credit -= piece.length;
      guest.send(FRAME.data, stream, piece, reader.at % 2 === 0 ? 1 : 2);
      onSent?.(socket);
    }
    if (reader.at < output.length || reader.ended || !ends || reader.credit <= 0) return;
    reader.ended = true;
    guest.send(FRAME.message, stream, { event: 'end', kind: 'exited', code: 3, offset: output.length });
    guest.send(FRAME.end, stream);
  };

  guest.onFrame = ({ type, stream, payload }) => {
    if (type === FRAME.open) {
      const request = decodeCborMap(payload);
      const at = request['op'] === 'attach' ? Number(request['offset']) : 0;
      readers.set(stream, { at, credit: INITIAL_CREDIT - 64, ended: false });
      guest.send(FRAME.message, stream, {
        event: 'started',
        pid: 42,
        offset: at,
        existing: request['op'] === 'attach',
      });
    } else if (type === FRAME.credit) {
      const reader = readers.get(stream);
      if (reader) reader.credit += payload.readUInt32BE(0);
    } else if (type === FRAME.data) {
      onInput?.(payload);
    } else if (type === FRAME.ping) {
      guest.send(FRAME.pong, 0, payload);
    } else if (type === FRAME.reset) {
      readers.delete(stream);
    }
    for (const [id, reader] of readers) pump(id, reader);
  };
  guest.hello(boot);
  return guest;
}
