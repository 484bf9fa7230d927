/** The project's documents, and what tests look at in them. */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '../..');

export interface Document {
  /** Below the repository's root. */
  path: string;
  text: string;
}

export interface Block {
  /** As tests name it: `docs/guide/sdk.md:12`. */
  where: string;
  language: string;
  /** The further words after the language. */
  marks: string[];
  code: string;
}

export async function documents(): Promise<Document[]> {
  const below = (await readdir(join(ROOT, 'docs'), { recursive: true })).map((name) => join('docs', name));
  const paths = [...(await readdir(ROOT)), ...below].filter((path) => path.endsWith('.md')).toSorted();
  return Promise.all(paths.map(async (path) => ({ path, text: await readFile(join(ROOT, path), 'utf8') })));
}

export function blocksOf({ path, text }: Document): Block[] {
  return [...text.matchAll(/^```(\w+)([^\n]*)\n(.*?)^```$/gms)].map((match) => ({
    where: `${path}:${text.slice(0, match.index).split('\n').length}`,
    language: match[1]!,
    marks: match[2]!.trim().split(/\s+/).filter(Boolean),
    code: match[3]!,
  }));
}

/** Without its code blocks, in which nothing is a heading or a link. */
export function prose({ text }: Document): string {
  return text.replaceAll(/^```.*?^```$/gms, '');
}
