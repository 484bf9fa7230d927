/**
 * How the messages of Connect are written: as JSON, or as protobuf. Clients choose by their content type.
 * Handlers see the same messages, except that `bytes` may be bytes.
 */
import type { ServerResponse } from 'node:http';
import { CayError } from '@cay/sdk/protocol';
import { decodeMessage, MalformedMessage } from '../../../lib/protobuf/decode.ts';
import { encodeMessage, encodePieces } from '../../../lib/protobuf/encode.ts';
import { nextSlice } from '../../../lib/slices.ts';
import { drained } from '../../../lib/drained.ts';
import { parseJson } from '../../http/read-json.ts';
import { sendLargeJson } from '../../http/send-large-json.ts';
import { CALL_MESSAGES } from './proto-messages.ts';

export interface Codec {
  /** Of a call that is no stream. */
  readonly unary: string;
  readonly streaming: string;
  /** Rejects `invalid_argument`. `owner` is the project, whose large messages are decoded one by one. */
  decode(path: string, bytes: Buffer, name: string, owner: string): Promise<unknown>;
  /** One message of a stream. */
  encode(path: string, message: unknown): Buffer;
  /** What stands for bytes in a message that is encoded. */
  bytes(data: Uint8Array): unknown;
  /** Answers a unary call. */
  send(response: ServerResponse, path: string, message: object, owner: string): Promise<void>;
}

const json: Codec = {
  unary: 'application/json',
  streaming: 'application/connect+json',
  decode: (_path, bytes, name, owner) => parseJson(bytes, name, { owner }),
  encode: (_path, message) => Buffer.from(JSON.stringify(message)),
  bytes: (data) => Buffer.from(data).toString('base64'),
  async send(response, _path, message, owner) {
    await sendLargeJson(response, message, owner);
  },
};

/** Requests have at most 4095 arguments and 1024 variables, of three fields each. */
const MOST_FIELDS = 16_384;
const SMALL_BYTES = 64 * 1024;
/** Items that are encoded in less than a millisecond. */
const ITEMS = 250;

const proto: Codec = {
  unary: 'application/proto',
  streaming: 'application/connect+proto',
  async decode(path, bytes, name, owner) {
    if (bytes.length > SMALL_BYTES) await nextSlice(owner);
    try {
      return decodeMessage(CALL_MESSAGES[path]!.request, bytes, MOST_FIELDS);
    } catch (error) {
      if (!(error instanceof MalformedMessage)) throw error;
      throw new CayError('invalid_argument', `${name} is not the message of this call: ${error.message}`);
    }
  },
  encode: (path, message) => encodeMessage(CALL_MESSAGES[path]!.answer, message as object),
  bytes: (data) => data,
  async send(response, path, message, owner) {
    if (response.headersSent) return;
    const pieces = encodePieces(CALL_MESSAGES[path]!.answer, message, ITEMS);
    const first = pieces.next().value as Buffer | undefined;
    const second = pieces.next().value as Buffer | undefined;
    response.writeHead(200, {
      'Content-Type': 'application/proto',
      ...(!second && { 'Content-Length': first?.length ?? 0 }),
    });
    if (!second) return void response.end(first);
    response.write(first);
    for (let piece: Buffer | undefined = second; piece; piece = pieces.next().value as Buffer | undefined) {
      if (response.destroyed) return;
      if (!response.write(piece)) await drained(response);
      await nextSlice(owner);
    }
    response.end();
  },
};

const CODECS = [json, proto];

/** The codec that a client chose. Undefined if there is none for its content type. */
export function codecOf(contentType: string | undefined, streaming: boolean): Codec | undefined {
  const given = (contentType ?? '').split(';', 1)[0]!.trim().toLowerCase();
  return CODECS.find((codec) => given === (streaming ? codec.streaming : codec.unary));
}

/** For `Accept-Post`. */
export function contentTypes(streaming: boolean): string {
  return CODECS.map((codec) => (streaming ? codec.streaming : codec.unary)).join(', ');
}
