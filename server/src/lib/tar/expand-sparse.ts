/**
 * A tar archive in which files with holes (GNU's form 1.0 in pax records) are files without, for readers that
 * know no holes. Input is untrusted; the zeros of a hole are made as they are read.
 */
import { byteReader, type ByteReader } from '../byte-reader.ts';
import { BLOCK } from './header.ts';
import { padding, tarEnd } from './pack.ts';
import { contentPadding, rawEntries, renamedHead, type RawEntry } from './raw-entries.ts';

const SPARSE = 'GNU.sparse.';
const MOST_SEGMENTS = 1_000_000;
const ZEROS = new Uint8Array(64 * 1024);

interface Segment {
  at: number;
  length: number;
}

/** Throws a plain `Error` that says what is wrong. */
export async function* expandSparse(
  tar: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = byteReader(tar);
  try {
    for await (const entry of rawEntries(reader)) {
      if ([...entry.records.keys()].some((key) => key.startsWith(SPARSE))) {
        yield* expanded(entry);
        continue;
      }
      yield entry.head;
      yield* entry.content;
      if (entry.sizeBytes % BLOCK !== 0) yield contentPadding(entry);
    }
    yield tarEnd();
  } finally {
    await reader.close();
  }
}

async function* expanded(entry: RawEntry): AsyncGenerator<Uint8Array, void, undefined> {
  const about = (key: string) => entry.records.get(SPARSE + key);
  const [name, size] = [about('name'), Number(about('realsize'))];
  if (about('major') !== '1' || about('minor') !== '0' || name === undefined || !isLength(size))
    throw new Error('a file with holes is of a kind that is not supported');
  const records = new Map([...entry.records].filter(([key]) => !key.startsWith(SPARSE)));
  records.set('size', String(size));
  yield renamedHead({ ...entry, records }, name);
  const content = byteReader(entry.content);
  const segments = await mapOf(content);
  let at = 0;
  for (const segment of segments) {
    if (segment.at < at || segment.at + segment.length > size)
      throw new Error('a map of holes makes no sense');
    yield* zeros(segment.at - at);
    at = segment.at;
    for (const end = segment.at + segment.length; at < end;) {
      const part = await content.some(end - at);
      if (part.length === 0) throw new Error('a file with holes is too short');
      yield part;
      at += part.length;
    }
  }
  yield* zeros(size - at);
  const rest = padding(size);
  if (rest.length > 0) yield rest;
}

/** The number of segments, then offset and length of each, every number on a line; padded to whole blocks. */
async function mapOf(content: ByteReader): Promise<Segment[]> {
  let text = '';
  const number = async () => {
    for (;;) {
      const end = text.indexOf('\n');
      if (end >= 0) {
        const value = Number(text.slice(0, end));
        if (end === 0 || end > 16 || !isLength(value)) break;
        text = text.slice(end + 1);
        return value;
      }
      if (text.length > 16) break;
      const block = await content.exactly(BLOCK);
      if (block.length === 0) break;
      text += block.toString('latin1');
    }
    throw new Error('a map of holes is broken');
  };
  const count = await number();
  if (count > MOST_SEGMENTS) throw new Error('a file has too many holes');
  const segments: Segment[] = [];
  for (let left = count; left > 0; left--) segments.push({ at: await number(), length: await number() });
  return segments;
}

function* zeros(count: number): Generator<Uint8Array, void, undefined> {
  for (let left = count; left > 0; left -= ZEROS.length)
    yield ZEROS.subarray(0, Math.min(left, ZEROS.length));
}

const isLength = (value: number) => Number.isSafeInteger(value) && value >= 0;
