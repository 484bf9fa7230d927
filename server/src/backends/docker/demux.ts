/**
 * Takes apart what the engine sends for an exec without a terminal: frames of an 8-byte header
 * (1 or 2 for stdout or stderr, three zeros, the length) and their bytes, cut anywhere.
 */
export type Demux = (part: Buffer, take: (channel: number, data: Buffer) => void) => void;

const HEADER_BYTES = 8;

export function demux(): Demux {
  let header = Buffer.alloc(0);
  let channel = 0;
  let left = 0;
  return (part, take) => {
    while (part.length > 0) {
      if (left > 0) {
        const data = part.subarray(0, left);
        left -= data.length;
        part = part.subarray(data.length);
        take(channel, data);
        continue;
      }
      const missing = HEADER_BYTES - header.length;
      header = Buffer.concat([header, part.subarray(0, missing)]);
      part = part.subarray(missing);
      if (header.length < HEADER_BYTES) return;
      channel = header.readUInt8(0);
      left = header.readUInt32BE(4);
      if (channel > 3 || header.readUIntBE(1, 3) !== 0)
        throw new Error('The stream of an exec has a broken frame header');
      header = Buffer.alloc(0);
    }
  };
}
