import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { usageError } from './failure.ts';
import { pathError } from './path-error.ts';

export interface SecretSource {
  fromFile?: string;
  insecureValue?: string;
}

/** As the server has it. */
const MAX_BYTES = 65_536;

/** The value of a secret: from a file, from stdin, or asked for on the terminal without showing it. */
export async function readSecret(name: string, source: SecretSource): Promise<string> {
  const { fromFile, insecureValue } = source;
  if (fromFile !== undefined && insecureValue !== undefined)
    throw usageError('--from-file and --insecure-value both give the value', 'give one of them');
  if (insecureValue !== undefined) return checked(insecureValue);
  if (fromFile !== undefined) return checked(oneLine(await contentOf(fromFile)));
  return checked(process.stdin.isTTY ? await prompt(name) : oneLine(await input()));
}

/** A line that ends, as `echo` and editors write it, is meant without its end. Keys of several lines stay. */
function oneLine(text: string): string {
  const end = /\r?\n$/.exec(text);
  const line = end ? text.slice(0, end.index) : text;
  return line.includes('\n') ? text : line;
}

function checked(value: string): string {
  if (value === '') throw usageError('The value of the secret is empty', 'pipe it in, or give --from-file');
  return value;
}

async function contentOf(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw pathError('read', path, error);
  }
}

async function input(): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BYTES)
      throw usageError(`The value of a secret has at most ${MAX_BYTES} bytes`, 'is it the right file?');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

async function prompt(name: string): Promise<string> {
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  process.stderr.write(`value of ${name}: `);
  const lines = createInterface({ input: process.stdin, output: silent, terminal: true });
  try {
    return await lines.question('');
  } finally {
    lines.close();
    process.stderr.write('\n');
  }
}
