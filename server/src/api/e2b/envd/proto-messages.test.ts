import { fromBinary, fromJson, toBinary, toJson, type DescMessage, type JsonValue } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeMessage, MalformedMessage } from '../../../lib/protobuf/decode.ts';
import { encodeMessage, encodePieces } from '../../../lib/protobuf/encode.ts';
import {
  MAP_ENTRY,
  wireOf,
  type Field,
  type FieldType,
  type MessageType,
} from '../../../lib/protobuf/message.ts';
import { publishedServices } from '../testing/published-services.ts';
import { CALL_MESSAGES } from './proto-messages.ts';

interface Pair {
  name: string;
  own: MessageType;
  published: DescMessage;
}

const pairs: Pair[] = publishedServices().flatMap((service) =>
  service.methods.flatMap((method) => {
    const own = CALL_MESSAGES[`/${service.typeName}/${method.name}`];
    if (!own) throw new Error(`${service.typeName}/${method.name} has no messages`);
    return [
      { name: `${method.name}: request`, own: own.request, published: method.input },
      { name: `${method.name}: answer`, own: own.answer, published: method.output },
    ];
  }),
);

const MOST_FIELDS = 10_000;
const text = () => fc.string({ unit: 'grapheme', maxLength: 12 });

function valueOf(type: FieldType): fc.Arbitrary<unknown> {
  if (typeof type === 'object') {
    return 'fields' in type ? messageOf(type) : fc.constantFrom(...Object.keys(type.names));
  }
  switch (type) {
    case 'string':
      return text();
    case 'bytes':
      return fc.uint8Array({ maxLength: 12 }).map((bytes) => Buffer.from(bytes));
    case 'bool':
      return fc.boolean();
    case 'uint32':
      return fc.nat({ max: 0xffff_ffff });
    case 'sint32':
      return fc.integer();
    case 'int64':
      return fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String);
    case 'timestamp':
      return fc
        .date({
          min: new Date('0001-01-01T00:00:00Z'),
          max: new Date('9999-12-31T00:00:00Z'),
          noInvalidDate: true,
        })
        .map((date) => date.toISOString());
    case 'map':
      return fc.dictionary(text(), text(), { minKeys: 1, maxKeys: 4 });
  }
}

/** Whether a field that the message has comes with another wire type than its own. */
function hasOtherWireType(type: MessageType, bytes: Buffer): boolean {
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; at < bytes.length; shift += 7n) {
      const byte = bytes[at++]!;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < bytes.length) {
    const tag = Number(varint() & 0xffff_ffffn);
    const wire = tag & 7;
    const field = type.fields.find(({ number }) => number === tag >>> 3);
    if (field && wireOf(field.type) !== wire) return true;
    if (wire === 0) varint();
    else if (wire === 1) at += 8;
    else if (wire === 5) at += 4;
    else if (wire === 2) {
      const length = Number(varint());
      const part = bytes.subarray(at, at + length);
      at += length;
      const inner = field?.type === 'map' ? MAP_ENTRY : field?.type;
      if (typeof inner === 'object' && 'fields' in inner && hasOtherWireType(inner, part)) return true;
    }
  }
  return false;
}

function fieldOf(field: Field): fc.Arbitrary<Record<string, unknown>> {
  const one = valueOf(field.type);
  const value = field.repeated ? fc.array(one, { minLength: 1, maxLength: 4 }) : one;
  return value.map((given) => ({ [field.name]: given }));
}

/** Any message of the type: each field may be absent, and of those that exclude each other one is there. */
function messageOf(type: MessageType): fc.Arbitrary<Record<string, unknown>> {
  const choices = type.fields.filter(({ oneof }) => oneof !== undefined);
  const parts = type.fields
    .filter(({ oneof }) => oneof === undefined)
    .map((field) => fc.option(fieldOf(field), { nil: {} }));
  if (choices.length > 0) parts.push(fc.option(fc.oneof(...choices.map(fieldOf)), { nil: {} }));
  return fc.tuple(...parts).map((given) => Object.assign({}, ...given) as Record<string, unknown>);
}

/** As JSON of proto3 has it, without defaults, which the published library leaves out. */
function normal(type: MessageType, value: Record<string, unknown>): Record<string, unknown> {
  const decoded = decodeMessage(type, encodeMessage(type, value), MOST_FIELDS);
  return JSON.parse(JSON.stringify(decoded, bytesAsText)) as Record<string, unknown>;
}

function bytesAsText(this: unknown, key: string, shown: unknown): unknown {
  const value = (this as Record<string, unknown>)[key];
  return Buffer.isBuffer(value) ? value.toString('base64') : shown;
}

/** Times have their milliseconds written out or not. */
function sameTimes(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (key, part: unknown) =>
    key === 'modifiedTime' ? new Date(part as string).toISOString() : part,
  ) as unknown;
}

describe("messages, beside the published library with the client's own descriptions", () => {
  it('has all calls of both services', () => {
    expect(pairs).toHaveLength(2 * Object.keys(CALL_MESSAGES).length);
  });

  it.each(pairs)('$name: either side reads what the other writes', ({ own, published }) => {
    fc.assert(
      fc.property(messageOf(own), (value) => {
        const expected = normal(own, value);
        const theirs = fromBinary(published, encodeMessage(own, value));
        expect(theirs.$unknown ?? []).toEqual([]);
        expect(sameTimes(toJson(published, theirs))).toEqual(expected);
        const written = Buffer.from(toBinary(published, fromJson(published, expected as JsonValue)));
        const read = decodeMessage(own, written, MOST_FIELDS);
        expect(JSON.parse(JSON.stringify(read, bytesAsText))).toEqual(expected);
      }),
    );
  });

  it.each(pairs)('$name: pieces are the whole', ({ own }) => {
    fc.assert(
      fc.property(messageOf(own), fc.integer({ min: 1, max: 3 }), (value, items) => {
        expect(Buffer.concat([...encodePieces(own, value, items)])).toEqual(encodeMessage(own, value));
      }),
    );
  });

  it.each(pairs)('$name: hostile bytes are refused, or mean what the library reads', ({ own, published }) => {
    /** Bytes of a message with some changed, cut or doubled: random ones are refused too soon. */
    const hostile = fc
      .tuple(
        messageOf(own),
        fc.array(fc.tuple(fc.nat(300), fc.nat(255)), { maxLength: 4 }),
        fc.nat(300),
        fc.boolean(),
      )
      .map(([value, changes, cut, twice]) => {
        let bytes = Buffer.from(encodeMessage(own, value));
        if (twice) bytes = Buffer.concat([bytes, bytes]);
        for (const [at, byte] of changes) if (at < bytes.length) bytes[at] = byte;
        return bytes.subarray(0, cut > 200 ? bytes.length : cut);
      });
    fc.assert(
      fc.property(
        fc.oneof(
          hostile,
          fc.uint8Array({ maxLength: 100 }).map((bytes) => Buffer.from(bytes)),
        ),
        (bytes) => {
          let read: unknown;
          try {
            read = decodeMessage(own, bytes, 200);
          } catch (error) {
            expect(error).toBeInstanceOf(MalformedMessage);
            return;
          }
          let theirs: JsonValue;
          try {
            theirs = toJson(published, fromBinary(published, bytes));
          } catch {
            // It also refuses what it cannot show as JSON, such as times beyond the year 9999.
            return;
          }
          // A known field with the wire type of another is passed over here; the library reads it as what it
          // knows.
          if (hasOtherWireType(own, bytes)) return;
          const shown = JSON.parse(JSON.stringify(read, bytesAsText)) as Record<string, unknown>;
          expect(sameTimes(theirs)).toEqual(normal(own, revived(own, shown)));
        },
      ),
      { numRuns: 300 },
    );
  });
});

/** The opposite of `bytesAsText`. */
function revived(type: MessageType, value: Record<string, unknown>): Record<string, unknown> {
  const one = (field: Field, given: unknown): unknown => {
    if (field.type === 'bytes') return Buffer.from(given as string, 'base64');
    const inner = typeof field.type === 'object' && 'fields' in field.type ? field.type : undefined;
    return inner ? revived(inner, given as Record<string, unknown>) : given;
  };
  return Object.fromEntries(
    Object.entries(value).map(([name, given]) => {
      const field = type.fields.find((known) => known.name === name)!;
      return [
        name,
        field.repeated ? (given as unknown[]).map((item) => one(field, item)) : one(field, given),
      ];
    }),
  );
}

describe('decodeMessage()', () => {
  const type = CALL_MESSAGES['/process.Process/Start']!.request;

  it('refuses more fields than it was allowed, also inside and in groups', () => {
    const many = encodeMessage(type, { process: { cmd: 'x', args: Array.from({ length: 100 }, () => '') } });
    expect(() => decodeMessage(type, many, 50)).toThrow(MalformedMessage);
    const group = Buffer.concat([Buffer.from([0x7b]), Buffer.alloc(200, 0x08), Buffer.from([0x7c])]);
    expect(() => decodeMessage(type, group, 50)).toThrow(MalformedMessage);
  });

  it('refuses groups without end, and groups in groups in groups', () => {
    expect(() => decodeMessage(type, Buffer.alloc(1_000_000, 0x7b), 1e9)).toThrow(MalformedMessage);
  });

  it('refuses lengths beyond the end, and numbers without end', () => {
    expect(() => decodeMessage(type, Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), 10)).toThrow(
      MalformedMessage,
    );
    expect(() => decodeMessage(type, Buffer.alloc(11, 0xff), 10)).toThrow(MalformedMessage);
    expect(() => decodeMessage(type, Buffer.from([0x20, ...Buffer.alloc(11, 0xff)]), 10)).toThrow(
      MalformedMessage,
    );
  });

  it('keeps variables whose names are those of a prototype', () => {
    const bytes = encodeMessage(type, {
      process: { cmd: 'x', envs: JSON.parse('{"__proto__":"a"}') as object },
    });
    const { process } = decodeMessage(type, bytes, 10) as { process: { envs: object } };
    expect(Object.entries(process.envs)).toEqual([['__proto__', 'a']]);
  });

  it('puts a time together that is given twice', () => {
    const { own, published } = pairs.find(({ name }) => name.startsWith('WatchDir: answer'))!;
    // The seconds of one, and the nanoseconds of the other: { filesystem: { entry: { modifiedTime } } }.
    const seconds = [0x4a, 2, 0x08, 5];
    const nanos = [0x4a, 5, 0x10, 0xc0, 0x84, 0x3d, 0];
    const times = [...seconds, ...nanos.slice(0, 1), 4, ...nanos.slice(2, 6)];
    const entry = [0x1a, times.length, ...times];
    const bytes = Buffer.from([0x12, entry.length, ...entry]);
    const theirs = toJson(published, fromBinary(published, bytes));
    expect(JSON.stringify(decodeMessage(own, bytes, 200))).toContain('1970-01-01T00:00:05.001Z');
    expect(JSON.stringify(theirs)).toContain('1970-01-01T00:00:05.001Z');
  });
});
