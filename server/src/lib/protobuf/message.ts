/**
 * Messages of protobuf (proto3) as tables. Values have the shape of proto3's JSON, except that `bytes` are
 * bytes: 64-bit numbers are decimal strings, enums are names, times are ISO strings, maps are objects.
 */
export interface MessageType {
  readonly fields: readonly Field[];
}

export interface Field {
  readonly number: number;
  /** The name in JSON. */
  readonly name: string;
  readonly type: FieldType;
  readonly repeated?: boolean;
  /** Fields with the same name here exclude each other: the last one counts. */
  readonly oneof?: string;
  /** The default value is written too, where a value is given. */
  readonly explicit?: boolean;
}

export type FieldType =
  | 'string'
  | 'bytes'
  | 'bool'
  | 'uint32'
  | 'sint32'
  | 'int64'
  /** `google.protobuf.Timestamp`. */
  | 'timestamp'
  /** Strings by strings. */
  | 'map'
  | { readonly names: Readonly<Record<string, number>> }
  | MessageType;

/** How the value of a field is written. */
export const WIRE = { varint: 0, fixed64: 1, bytes: 2, startGroup: 3, endGroup: 4, fixed32: 5 } as const;

export function wireOf(type: FieldType): number {
  if (typeof type === 'object') return 'names' in type ? WIRE.varint : WIRE.bytes;
  return type === 'bool' || type === 'uint32' || type === 'sint32' || type === 'int64'
    ? WIRE.varint
    : WIRE.bytes;
}

/** A map is a repeated message of a key and a value. */
export const MAP_ENTRY: MessageType = {
  fields: [
    { number: 1, name: 'key', type: 'string' },
    { number: 2, name: 'value', type: 'string' },
  ],
};

export const TIMESTAMP: MessageType = {
  fields: [
    { number: 1, name: 'seconds', type: 'int64' },
    { number: 2, name: 'nanos', type: 'uint32' },
  ],
};
