import { Buffer, isUtf8 } from 'node:buffer';
import { MAP_ENTRY, TIMESTAMP, WIRE, wireOf, type Field, type MessageType } from './message.ts';

/** The bytes are no such message, or have more in them than is allowed. */
export class MalformedMessage extends Error {}

type Values = Record<string, unknown>;

interface Reader {
  readonly bytes: Buffer;
  at: number;
  readonly end: number;
  /** Fields that may still come, in this message and in those inside it. */
  readonly left: { fields: number };
}

/** Groups are not read, only passed over. */
const DEEPEST_GROUP = 32;

/**
 * Decodes a message of at most `mostFields` fields, counting those of messages inside it and those that are
 * not known. Values of type `bytes` are views of the input. Throws `MalformedMessage`.
 */
export function decodeMessage(type: MessageType, bytes: Buffer, mostFields: number): Values {
  return readMessage(type, { bytes, at: 0, end: bytes.length, left: { fields: mostFields } }, values());
}

/** Field names of a map come from the client, and must not meet those of a prototype. */
function values(): Values {
  return Object.create(null) as Values;
}

function readMessage(type: MessageType, reader: Reader, into: Values): Values {
  while (reader.at < reader.end) {
    if (reader.left.fields-- <= 0) throw new MalformedMessage('it has too many fields');
    const tag = readUint32(reader, 'a tag');
    const [number, wire] = [tag >>> 3, tag & 7];
    if (number === 0) throw new MalformedMessage('a field has the number 0');
    const field = type.fields.find((one) => one.number === number);
    if (!field || wireOf(field.type) !== wire) skip(reader, wire, number);
    else readField(field, type, reader, into);
  }
  return into;
}

function readField(field: Field, type: MessageType, reader: Reader, into: Values): void {
  const { name, oneof } = field;
  if (oneof !== undefined)
    for (const other of type.fields) if (other.oneof === oneof && other !== field) delete into[other.name];
  if (field.type === 'map') {
    const { key, value } = readMessage(MAP_ENTRY, part(reader), { key: '', value: '' });
    (into[name] ??= values()) as Values;
    (into[name] as Values)[key as string] = value;
  } else if (field.repeated) {
    ((into[name] ??= []) as unknown[]).push(readValue(field, reader, undefined));
  } else into[name] = readValue(field, reader, into[name]);
}

function readValue({ type }: Field, reader: Reader, before: unknown): unknown {
  if (typeof type === 'object') {
    // A message that is given twice is put together from both.
    if ('fields' in type) return readMessage(type, part(reader), (before as Values | undefined) ?? values());
    const number = Number(BigInt.asIntN(32, readVarint(reader)));
    return Object.keys(type.names).find((name) => type.names[name] === number) ?? number;
  }
  switch (type) {
    case 'string': {
      const { bytes, at, end } = part(reader);
      const text = bytes.subarray(at, end);
      if (!isUtf8(text)) throw new MalformedMessage('a string is not UTF-8');
      return text.toString();
    }
    case 'bytes': {
      const { bytes, at, end } = part(reader);
      return bytes.subarray(at, end);
    }
    case 'bool':
      return readVarint(reader) !== 0n;
    case 'uint32':
      return Number(BigInt.asUintN(32, readVarint(reader)));
    case 'sint32': {
      const coded = Number(BigInt.asUintN(32, readVarint(reader)));
      return (coded >>> 1) ^ -(coded & 1);
    }
    case 'int64':
      return String(BigInt.asIntN(64, readVarint(reader)));
    case 'timestamp': {
      // It is a message: one that is given twice is put together from both.
      const earlier = typeof before === 'string' ? Date.parse(before) : 0;
      const seconds = Math.floor(earlier / 1000);
      const nanos = (earlier - seconds * 1000) * 1e6;
      const given = readMessage(TIMESTAMP, part(reader), { seconds: String(seconds), nanos });
      const ms = Number(given['seconds']) * 1000 + Math.trunc(Number(given['nanos']) / 1e6);
      if (Math.abs(ms) > 8.64e15) throw new MalformedMessage('a time is out of range');
      return new Date(ms).toISOString();
    }
    case 'map':
      throw new Error('A map is read with its field');
  }
}

/** The next bytes that say their own length. */
function part(reader: Reader): Reader {
  const length = readUint32(reader, 'a length');
  const at = reader.at;
  if (length > reader.end - at) throw new MalformedMessage('it is truncated');
  reader.at = at + length;
  return { bytes: reader.bytes, at, end: reader.at, left: reader.left };
}

function readVarint(reader: Reader): bigint {
  let value = 0n;
  for (let shift = 0n; shift < 70n; shift += 7n) {
    const byte = readByte(reader);
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) return BigInt.asUintN(64, value);
  }
  throw new MalformedMessage('a number has more than 10 bytes');
}

/** A number that has to fit into 32 bits. */
function readUint32(reader: Reader, what: string): number {
  let value = 0;
  for (let shift = 0; shift < 35; shift += 7) {
    const byte = readByte(reader);
    value += (byte & 0x7f) * 2 ** shift;
    if (byte >= 0x80) continue;
    if (value > 0xffff_ffff) break;
    return value;
  }
  throw new MalformedMessage(`${what} does not fit into 32 bits`);
}

function readByte(reader: Reader): number {
  if (reader.at >= reader.end) throw new MalformedMessage('it is truncated');
  return reader.bytes[reader.at++]!;
}

function skip(reader: Reader, wire: number, number: number, depth = 0): void {
  if (wire === WIRE.varint) readVarint(reader);
  else if (wire === WIRE.bytes) part(reader);
  else if (wire === WIRE.fixed64 || wire === WIRE.fixed32) {
    const length = wire === WIRE.fixed64 ? 8 : 4;
    if (length > reader.end - reader.at) throw new MalformedMessage('it is truncated');
    reader.at += length;
  } else if (wire === WIRE.startGroup && depth < DEEPEST_GROUP) skipGroup(reader, number, depth);
  else throw new MalformedMessage('a field is of no known kind, or groups are too deep');
}

function skipGroup(reader: Reader, number: number, depth: number): void {
  for (;;) {
    if (reader.left.fields-- <= 0) throw new MalformedMessage('it has too many fields');
    const tag = readUint32(reader, 'a tag');
    const [inner, wire] = [tag >>> 3, tag & 7];
    if (wire === WIRE.endGroup && inner === number) return;
    if (inner === 0) throw new MalformedMessage('a field has the number 0');
    skip(reader, wire, inner, depth + 1);
  }
}
