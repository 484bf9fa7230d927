/** Reads `multipart/form-data` as a stream, so a file of any size takes little memory. */
import { CayError } from '@cay/sdk/protocol';
import { lend } from '../../../lib/lent-memory.ts';

export interface Part {
  name: string | undefined;
  filename: string | undefined;
  /** Read it before the next part. The rest of it is skipped then. */
  data: AsyncIterable<Uint8Array>;
}

const MAX_HEADERS = 16 * 1024;
const CRLF = '\r\n';

/** The boundary in a content type. Throws `invalid_argument`. */
export function boundaryOf(contentType: string): string {
  const match = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(contentType);
  const boundary = match?.[1] ?? match?.[2];
  if (boundary === undefined) throw new CayError('invalid_argument', 'The multipart body has no boundary');
  return boundary;
}

export async function* readParts(body: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<Part> {
  const source = body[Symbol.asyncIterator]();
  const delimiter = Buffer.from(`${CRLF}--${boundary}`);
  // The first boundary may be at the very beginning.
  let held = Buffer.from(CRLF);

  async function more(): Promise<void> {
    const next = await source.next();
    if (next.done) throw new CayError('invalid_argument', 'The multipart body is cut off');
    held = held.length === 0 ? Buffer.from(next.value) : Buffer.concat([held, next.value]);
  }

  /** Bytes up to the next boundary. */
  async function* content(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const at = held.indexOf(delimiter);
      const sure = at === -1 ? held.length - delimiter.length + 1 : at;
      if (sure > 0) {
        const part = held.subarray(0, sure);
        if (at === -1) {
          // The rest is copied, so that nothing else uses the memory of the part.
          lend(held, sure);
          held = Buffer.from(held.subarray(sure));
        } else held = held.subarray(sure);
        yield part;
      }
      if (at !== -1) {
        held = held.subarray(delimiter.length);
        return;
      }
      await more();
    }
  }

  async function upTo(end: string): Promise<string> {
    for (;;) {
      const at = held.indexOf(end);
      if (at !== -1) {
        const text = held.subarray(0, at).toString();
        held = held.subarray(at + end.length);
        return text;
      }
      if (held.length > MAX_HEADERS)
        throw new CayError('invalid_argument', 'The headers of a part are too long');
      await more();
    }
  }

  for await (const _ of content());
  for (;;) {
    while (held.length < 2) await more();
    if (held.subarray(0, 2).equals(Buffer.from('--'))) return;
    await upTo(CRLF);
    const data = content();
    yield { ...disposition(await headers()), data };
    for await (const _ of data);
  }

  async function headers(): Promise<string[]> {
    const lines: string[] = [];
    for (let total = 0; total <= MAX_HEADERS;) {
      const line = await upTo(CRLF);
      if (line === '') return lines;
      total += line.length;
      lines.push(line);
    }
    throw new CayError('invalid_argument', 'The headers of a part are too long');
  }
}

function disposition(headers: string[]): Pick<Part, 'name' | 'filename'> {
  const value = headers.find((line) => /^content-disposition:/i.test(line)) ?? '';
  const parameter = (name: string) => {
    const match = new RegExp(`;\\s*${name}="((?:[^"\\\\]|\\\\.)*)"`, 'i').exec(value);
    return match && unescape(match[1]!);
  };
  return { name: parameter('name') ?? undefined, filename: parameter('filename') ?? undefined };
}

/** Browsers percent-encode three characters in names. Older clients escape quotes with a backslash. */
function unescape(text: string): string {
  return text
    .replaceAll(/%22|\\"/g, '"')
    .replaceAll('%0D', '\r')
    .replaceAll('%0A', '\n');
}
