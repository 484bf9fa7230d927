/**
 * Reads the ClientHello that begins a TLS connection, as far as the server needs it: which name is asked for
 * and which protocols are offered. It may be spread over records and chunks. Every length is checked against
 * what is there, and all together is bounded.
 */
export interface ClientHello {
  /** The name that the client asks for, in lower case. Nothing if it asks for none. */
  readonly serverName: string | undefined;
  /** The protocols that it offers (ALPN). */
  readonly protocols: readonly string[];
  /** Whether it offers a second, encrypted ClientHello. Then the name is the outer one. */
  readonly encrypted: boolean;
}

export type HelloResult =
  | { readonly kind: 'hello'; readonly hello: ClientHello }
  /** More bytes are needed. */
  | { readonly kind: 'more' }
  /** It is no ClientHello, or one that no library sends. */
  | { readonly kind: 'bad' };

/** Post-quantum key shares make hellos of 2 KB and more; the protocol's own bound is 16 MB. */
export const MAX_HELLO = 32 * 1024;

const MAX_RECORDS = 256;

const MORE = { kind: 'more' } as const;
const BAD = { kind: 'bad' } as const;
const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const ALPN = 16;
const ENCRYPTED_HELLO = 0xfe0d;

export function parseClientHello(bytes: Buffer): HelloResult {
  const message = assemble(bytes);
  if (!Buffer.isBuffer(message)) return message;
  try {
    const hello = readHello(new Cursor(message));
    return hello ? { kind: 'hello', hello } : BAD;
  } catch (error) {
    if (error instanceof RangeError) return BAD;
    throw error;
  }
}

/** Puts the fragments of the first handshake message together. */
function assemble(bytes: Buffer): Buffer | typeof MORE | typeof BAD {
  const parts: Buffer[] = [];
  let have = 0;
  for (let at = 0; ;) {
    if (bytes.length - at < 5) return at === 0 && bytes.length > 0 && bytes[0] !== HANDSHAKE ? BAD : MORE;
    const length = bytes.readUInt16BE(at + 3);
    if (bytes[at] !== HANDSHAKE || bytes[at + 1] !== 3 || length === 0 || length > 16_384) return BAD;
    const part = bytes.subarray(at + 5, at + 5 + length);
    have += part.length;
    // No library cuts a hello in so many pieces, and each costs time.
    if (parts.push(part) > MAX_RECORDS || have > MAX_HELLO + 16_384) return BAD;
    if (part.length < length) {
      const begun = Buffer.concat(parts);
      return begun.length >= 4 && !plausible(begun) ? BAD : MORE;
    }
    at += 5 + length;
    if (have < 4) continue;
    const message = Buffer.concat(parts);
    if (!plausible(message)) return BAD;
    const size = message.readUIntBE(1, 3) + 4;
    if (have >= size) return message.subarray(4, size);
  }
}

function plausible(message: Buffer): boolean {
  return message[0] === CLIENT_HELLO && message.readUIntBE(1, 3) + 4 <= MAX_HELLO;
}

function readHello(cursor: Cursor): ClientHello | undefined {
  cursor.skip(2 + 32);
  cursor.skip(cursor.number(1));
  cursor.skip(cursor.number(2));
  cursor.skip(cursor.number(1));
  let serverName: string | undefined;
  let protocols: string[] = [];
  let encrypted = false;
  if (cursor.left === 0) return { serverName, protocols, encrypted };
  const extensions = cursor.take(cursor.number(2));
  if (cursor.left > 0) return undefined;
  const seen = new Set<number>();
  while (extensions.left > 0) {
    const type = extensions.number(2);
    const body = extensions.take(extensions.number(2));
    // Two of a kind would be read differently here and there.
    if (seen.has(type)) return undefined;
    seen.add(type);
    if (type === ENCRYPTED_HELLO) encrypted = true;
    else if (type === ALPN) protocols = readProtocols(body);
    else if (type === SERVER_NAME) {
      const name = readServerName(body);
      if (name === undefined) return undefined;
      serverName = name;
    }
  }
  return { serverName, protocols, encrypted };
}

function readServerName(body: Cursor): string | undefined {
  const list = body.take(body.number(2));
  if (body.left > 0 || list.number(1) !== 0) return undefined;
  const name = list.take(list.number(2)).rest().toString('latin1').toLowerCase();
  // One name alone: a second could be the one that a server takes.
  return list.left === 0 && /^[a-z0-9_.-]{1,253}$/.test(name) ? name : undefined;
}

function readProtocols(body: Cursor): string[] {
  const list = body.take(body.number(2));
  const protocols: string[] = [];
  while (list.left > 0 && protocols.length < 64)
    protocols.push(list.take(list.number(1)).rest().toString('latin1'));
  return protocols;
}

class Cursor {
  #at = 0;
  readonly #bytes: Buffer;
  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }
  get left(): number {
    return this.#bytes.length - this.#at;
  }
  skip(length: number): void {
    if (length > this.left) throw new RangeError('It ends early');
    this.#at += length;
  }
  number(length: number): number {
    this.skip(length);
    return this.#bytes.readUIntBE(this.#at - length, length);
  }
  take(length: number): Cursor {
    this.skip(length);
    return new Cursor(this.#bytes.subarray(this.#at - length, this.#at));
  }
  rest(): Buffer {
    return this.#bytes.subarray(this.#at);
  }
}
