/** The first message of TLS, made by hand: for what no library would send. */
const u16 = (value: number) => Buffer.from([value >> 8, value & 255]);

/** Bytes after their length. */
export const sized = (bytes: Buffer): Buffer => Buffer.concat([u16(bytes.length), bytes]);

export const extension = (kind: number, body: Buffer): Buffer => Buffer.concat([u16(kind), sized(body)]);

/** The extension with the names of servers (SNI). */
export const serverName = (...names: string[]): Buffer =>
  extension(
    0,
    sized(
      Buffer.concat(
        names.map((name) => Buffer.concat([Buffer.from([0]), sized(Buffer.from(name, 'latin1'))])),
      ),
    ),
  );

export function clientHello(extensions: readonly Buffer[]): Buffer {
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(32, 7),
    Buffer.from([0]),
    sized(Buffer.concat([0x1301, 0xc02b, 0xc02f, 0x009c].map(u16))),
    Buffer.from([1, 0]),
    sized(Buffer.concat(extensions)),
  ]);
  return Buffer.concat([Buffer.from([1, 0]), u16(body.length), body]);
}

/** A record that carries a message, or a piece of one. */
export const record = (fragment: Buffer): Buffer =>
  Buffer.concat([Buffer.from([0x16, 3, 1]), sized(fragment)]);
