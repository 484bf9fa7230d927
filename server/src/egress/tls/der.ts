/** As much of DER as certificates need. */
export function der(tag: number, ...content: (Uint8Array | string)[]): Buffer {
  const body = Buffer.concat(content.map((part) => Buffer.from(part as Uint8Array)));
  if (body.length < 128) return Buffer.concat([Buffer.from([tag, body.length]), body]);
  const length: number[] = [];
  for (let rest = body.length; rest > 0; rest >>= 8) length.unshift(rest & 255);
  return Buffer.concat([Buffer.from([tag, 0x80 | length.length, ...length]), body]);
}

export const sequence = (...content: Uint8Array[]) => der(0x30, ...content);
export const set = (...content: Uint8Array[]) => der(0x31, ...content);
export const utf8 = (text: string) => der(0x0c, Buffer.from(text));
export const octets = (content: Uint8Array) => der(0x04, content);
export const bits = (content: Uint8Array, unused = 0) => der(0x03, Buffer.from([unused]), content);
export const boolean = (value: boolean) => der(0x01, Buffer.from([value ? 0xff : 0]));
/** A constructed element of this context, such as `[3]`. */
export const tagged = (number: number, ...content: Uint8Array[]) => der(0xa0 | number, ...content);

/** A number that is not negative, from its bytes. */
export function integer(bytes: Uint8Array): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start++;
  const plain = bytes.subarray(start);
  return der(0x02, ...(plain[0]! & 0x80 ? [Buffer.from([0])] : []), plain);
}

export function oid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split('.').map(Number);
  const base128 = (value: number) => {
    const out = [value & 127];
    for (let left = value >>> 7; left > 0; left >>>= 7) out.unshift((left & 127) | 128);
    return out;
  };
  return der(0x06, Buffer.from([40 * first + second, ...rest.flatMap(base128)]));
}

/** UTCTime until 2049, GeneralizedTime from then on. */
export function time(date: Date): Buffer {
  const text = date.toISOString().replace(/[-:T]|\.\d+/g, '');
  return date.getUTCFullYear() < 2050 ? der(0x17, Buffer.from(text.slice(2))) : der(0x18, Buffer.from(text));
}
