/**
 * Reading tar streams: ustar, pax and GNU long names. Input is untrusted; nothing is held beyond the bound.
 */
import type { ByteReader } from '../byte-reader.ts';
import { entryContent, take } from './entry-content.ts';
import {
  BLOCK,
  decodeHeader,
  decodeRecords,
  paddingOf,
  textAt,
  type Entry,
  type Extended,
} from './header.ts';

export interface TarEntry extends Entry {
  /** Pax records and GNU long names that apply to this entry. */
  extended: Extended;
  /**
   * The content, `sizeBytes` long, of which what was not read is skipped before the next entry. Throws
   * `TruncatedError` if the archive ends in it.
   */
  content: AsyncIterable<Uint8Array>;
}

/**
 * The entries of an archive, until its end mark or the end of the stream; some writers leave the mark out. An
 * entry's content can be read until the next entry is asked for. Throws a plain `Error` that says what is
 * wrong, for the caller to put into words of its own.
 */
export async function* readTar(
  reader: ByteReader,
  { maxExtendedBytes }: { maxExtendedBytes: number },
): AsyncGenerator<TarEntry, void, undefined> {
  let extended: Extended = {};
  for (;;) {
    const head = await reader.exactly(BLOCK);
    if (head.every((byte) => byte === 0)) return;
    const { letter, ...entry } = decodeHeader(head, extended);
    if ('xgLK'.includes(letter)) {
      if (entry.sizeBytes > maxExtendedBytes) throw new Error('an extended header is too long');
      const body = await take(reader, entry.sizeBytes);
      await take(reader, paddingOf(entry.sizeBytes));
      extended = { ...extended, ...recordsOf(letter, body) };
      continue;
    }
    // A link or a directory has no content, whatever its header says.
    const sizeBytes = entry.type === 'file' || entry.type === 'other' ? entry.sizeBytes : 0;
    const { content, skip } = entryContent(reader, sizeBytes);
    yield { ...entry, sizeBytes, extended, content };
    extended = {};
    await skip();
  }
}

function recordsOf(letter: string, body: Buffer): Extended {
  if (letter === 'x') return decodeRecords(body);
  if (letter === 'L') return { path: textAt(body, 0, body.length) };
  if (letter === 'K') return { linkpath: textAt(body, 0, body.length) };
  // Global records say nothing that matters here.
  return {};
}
