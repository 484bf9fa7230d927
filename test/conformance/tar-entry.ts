export interface TarEntry {
  name: string;
  /** `0` file, `1` hard link, `2` symlink, `3` character device, `5` directory. */
  type?: string;
  link?: string;
  content?: string;
  mode?: number;
}

/** A ustar archive with exactly these entries, however wrong they are. */
export function tarOf(entries: TarEntry[]): Buffer {
  return Buffer.concat([...entries.map(block), Buffer.alloc(1024)]);
}

function block({ name, type = '0', link = '', content = '', mode = 0o644 }: TarEntry): Buffer {
  const header = Buffer.alloc(512);
  const body = Buffer.from(content);
  header.write(name, 0, 100);
  header.write(octal(mode, 7), 100);
  header.write(octal(0, 7), 108);
  header.write(octal(0, 7), 116);
  header.write(octal(body.length, 11), 124);
  header.write(octal(0, 11), 136);
  header.write('        ', 148);
  header.write(type, 156);
  header.write(link, 157, 100);
  header.write('ustar\u000000', 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)}\u0000 `, 148);
  return Buffer.concat([header, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
}

const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0');

/**
 * The names of a pax archive in their order, without slashes at either end. Long names are read from their
 * records.
 */
export function tarNames(archive: Buffer): string[] {
  const names: string[] = [];
  let long: string | undefined;
  for (let at = 0; at + 512 <= archive.length && archive[at] !== 0;) {
    const text = (offset: number, length: number) =>
      archive.toString('utf8', at + offset, at + offset + length).replace(/\0.*$/s, '');
    const size = Number.parseInt(text(124, 12), 8);
    const body = archive.subarray(at + 512, at + 512 + size);
    const letter = text(156, 1);
    if (letter === 'x') long = /\d+ path=([^\n]*)\n/.exec(body.toString())?.[1];
    else if (letter !== 'g') {
      const prefix = text(345, 155);
      names.push(
        (long ?? (prefix ? `${prefix}/${text(0, 100)}` : text(0, 100))).replace(/^(\.?\/)+|\/+$/g, ''),
      );
      long = undefined;
    }
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return names;
}
