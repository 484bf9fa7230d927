const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING = new Set([0x5b, 0x7b]);

/**
 * About how many values a JSON text has, without parsing it: a megabyte of empty arrays takes a hundred times
 * as much to parse and to hold. It stops counting beyond `most`, and takes strings in one step each.
 */
export function jsonValues(text: Buffer, most: number): number {
  let values = 1;
  for (let at = 0; at < text.length && values <= most; at++) {
    const byte = text[at]!;
    if (byte === QUOTE) at = stringEnd(text, at);
    else if (byte === COMMA || OPENING.has(byte)) values++;
  }
  return values;
}

function stringEnd(text: Buffer, start: number): number {
  for (let at = start; ;) {
    at = text.indexOf(QUOTE, at + 1);
    if (at === -1) return text.length;
    let backslashes = 0;
    while (text[at - 1 - backslashes] === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return at;
  }
}
