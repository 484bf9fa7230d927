const TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  return value;
});

/** CRC-32C (Castagnoli) as btrfs has it: it starts from `start`, and is inverted neither before nor after. */
export function crc32c(bytes: Uint8Array, start = 0): number {
  let crc = start;
  for (const byte of bytes) crc = (crc >>> 8) ^ TABLE[(crc ^ byte) & 0xff]!;
  return crc >>> 0;
}
