const BLOCK = 512;
const encoder = new TextEncoder();

/** A tar archive of files with short names of ASCII. */
export function tarOf(
  files: readonly { name: string; content: string | Uint8Array; mode: number }[],
): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  for (const { name, content, mode } of files) {
    const bytes = typeof content === 'string' ? encoder.encode(content) : content;
    parts.push(
      header(name, bytes.length, mode),
      bytes,
      new Uint8Array((BLOCK - (bytes.length % BLOCK)) % BLOCK),
    );
  }
  parts.push(new Uint8Array(2 * BLOCK));
  const archive = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    archive.set(part, at);
    at += part.length;
  }
  return archive;
}

function header(name: string, size: number, mode: number): Uint8Array {
  const block = new Uint8Array(BLOCK);
  const put = (text: string, at: number) => block.set(encoder.encode(text), at);
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0');
  put(name, 0);
  put(octal(mode & 0o7777, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(size, 11), 124);
  put(octal(0, 11), 136);
  put('        ', 148);
  put('0', 156);
  put('ustar\u000000', 257);
  put(
    `${octal(
      block.reduce((sum, byte) => sum + byte, 0),
      6,
    )}\u0000 `,
    148,
  );
  return block;
}
