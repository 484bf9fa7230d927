import { Buffer } from 'node:buffer';
import { MAP_ENTRY, TIMESTAMP, wireOf, type Field, type MessageType } from './message.ts';

type Values = Readonly<Record<string, unknown>>;

/**
 * Encodes a message that has the shape of its type. It is written from its end to its start, so that the
 * length of a message inside it is known when it is written, and no byte is copied for it.
 */
export function encodeMessage(type: MessageType, value: object): Buffer {
  const writer = new Writer();
  writeMessage(type, value as Values, writer);
  return writer.bytes();
}

/**
 * The same in pieces, for a message with long lists: each piece holds some items, and together they are the
 * message.
 */
export function* encodePieces(type: MessageType, value: object, items: number): Generator<Buffer> {
  for (const field of type.fields) {
    const given = (value as Values)[field.name];
    if (!field.repeated || !Array.isArray(given)) {
      const piece = encodeMessage({ fields: [field] }, value);
      if (piece.length > 0) yield piece;
      continue;
    }
    for (let at = 0; at < given.length; at += items)
      yield encodeMessage({ fields: [field] }, { [field.name]: given.slice(at, at + items) });
  }
}

function writeMessage(type: MessageType, value: Values, writer: Writer): void {
  for (let at = type.fields.length - 1; at >= 0; at--) writeField(type.fields[at]!, value, writer);
}

function writeField(field: Field, value: Values, writer: Writer): void {
  const given = value[field.name];
  if (given === undefined || given === null) return;
  if (field.type === 'map') {
    for (const [key, text] of Object.entries(given as Values).toReversed())
      writePart(field, writer, () => writeMessage(MAP_ENTRY, { key, value: text }, writer));
  } else if (field.repeated) {
    for (const item of (given as unknown[]).toReversed()) writeValue(field, item, writer);
  } else if (field.explicit || field.oneof !== undefined || !isDefault(field, given))
    writeValue(field, given, writer);
}

/** Fields that have their default value are not written. */
function isDefault({ type }: Field, value: unknown): boolean {
  if (typeof type === 'object') return 'names' in type && numberOf(type.names, value) === 0;
  switch (type) {
    case 'string':
      return value === '';
    case 'bytes':
      return (value as Uint8Array).length === 0;
    case 'bool':
      return value === false;
    case 'uint32':
    case 'sint32':
      return value === 0;
    case 'int64':
      return BigInt(value as string) === 0n;
    case 'timestamp':
    case 'map':
      return false;
  }
}

function writeValue(field: Field, value: unknown, writer: Writer): void {
  const { type } = field;
  if (typeof type === 'object') {
    if ('fields' in type) writePart(field, writer, () => writeMessage(type, value as Values, writer));
    else writeNumber(field, writer, BigInt(numberOf(type.names, value)));
    return;
  }
  switch (type) {
    case 'string':
      return writePart(field, writer, () => writer.text(value as string));
    case 'bytes':
      return writePart(field, writer, () => writer.copy(value as Uint8Array));
    case 'bool':
      return writeNumber(field, writer, value ? 1n : 0n);
    case 'uint32':
      return writeNumber(field, writer, BigInt(value as number));
    case 'sint32': {
      const number = value as number;
      return writeNumber(field, writer, BigInt(((number << 1) ^ (number >> 31)) >>> 0));
    }
    case 'int64':
      return writeNumber(field, writer, BigInt(value as string));
    case 'timestamp': {
      const ms = Date.parse(value as string);
      const seconds = Math.floor(ms / 1000);
      const given = { seconds: String(seconds), nanos: (ms - seconds * 1000) * 1e6 };
      return writePart(field, writer, () => writeMessage(TIMESTAMP, given, writer));
    }
    case 'map':
      throw new Error('A map is written with its field');
  }
}

function writePart(field: Field, writer: Writer, write: () => void): void {
  const before = writer.length;
  write();
  writer.varint(BigInt(writer.length - before));
  writer.tag(field.number, wireOf(field.type));
}

function writeNumber(field: Field, writer: Writer, value: bigint): void {
  writer.varint(BigInt.asUintN(64, value));
  writer.tag(field.number, wireOf(field.type));
}

function numberOf(names: Readonly<Record<string, number>>, value: unknown): number {
  return typeof value === 'number' ? value : (names[value as string] ?? 0);
}

const FIRST_BYTES = 256;

/** Bytes from the last to the first. */
class Writer {
  #buffer = Buffer.allocUnsafe(FIRST_BYTES);
  #at = FIRST_BYTES;

  get length(): number {
    return this.#buffer.length - this.#at;
  }

  bytes(): Buffer {
    return this.#buffer.subarray(this.#at);
  }

  copy(data: Uint8Array): void {
    this.#reserve(data.length);
    this.#buffer.set(data, this.#at);
  }

  text(value: string): void {
    const length = Buffer.byteLength(value);
    this.#reserve(length);
    this.#buffer.write(value, this.#at, length);
  }

  varint(value: bigint): void {
    let length = 1;
    for (let rest = value >> 7n; rest > 0n; rest >>= 7n) length++;
    this.#reserve(length);
    let rest = value;
    for (let index = 0; index < length; index++) {
      this.#buffer[this.#at + index] = Number(rest & 0x7fn) | (index < length - 1 ? 0x80 : 0);
      rest >>= 7n;
    }
  }

  tag(number: number, wire: number): void {
    this.varint(BigInt(number * 8 + wire));
  }

  /** Makes room in front of what is written. */
  #reserve(length: number): void {
    if (this.#at < length) {
      const used = this.length;
      const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, used + length + FIRST_BYTES));
      this.bytes().copy(larger, larger.length - used);
      this.#at = larger.length - used;
      this.#buffer = larger;
    }
    this.#at -= length;
  }
}
