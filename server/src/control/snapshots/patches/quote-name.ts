const SHORT: Record<number, string> = {
  7: '\\a',
  8: '\\b',
  9: '\\t',
  10: '\\n',
  11: '\\v',
  12: '\\f',
  13: '\\r',
  34: '\\"',
  92: '\\\\',
};

/**
 * A name as git writes it: as it is, or between quotes with escapes if there is anything unusual in it. A
 * directory whose name ends with a space counts as unusual: git itself leaves it as it is, and cannot read
 * that.
 */
export function quoteName(name: string): string {
  if (/^[\x20-\x7e]*$/.test(name) && !/["\\]| \//.test(name)) return name;
  let quoted = '';
  for (const byte of Buffer.from(name)) {
    quoted +=
      SHORT[byte] ??
      (byte < 0x20 || byte >= 0x7f ? `\\${byte.toString(8).padStart(3, '0')}` : String.fromCharCode(byte));
  }
  return `"${quoted}"`;
}
