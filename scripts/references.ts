/** The generated references, by the path of their file below `docs/reference`. */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { memoryServer } from '../test/support/memory-server.ts';
import { apiReference, type OpenApiDocument } from './api-reference.ts';
import { errorReference } from './error-reference.ts';

export const REFERENCE_DIR = join(import.meta.dirname, '../docs/reference');
const PROTOCOL_DIR = join(import.meta.dirname, '../sdk/src/protocol');

export async function references(): Promise<Record<string, string>> {
  const names = (await readdir(PROTOCOL_DIR))
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .toSorted();
  const sources = await Promise.all(names.map((name) => readFile(join(PROTOCOL_DIR, name), 'utf8')));
  return {
    'api.md': apiReference(await openApiDocument(), sources),
    'errors.md': errorReference(sources[names.indexOf('error.ts')]!),
  };
}

/** As a running server tells it. */
async function openApiDocument(): Promise<OpenApiDocument> {
  await using server = await memoryServer();
  return (await (await fetch(`${server.url}/openapi.json`)).json()) as OpenApiDocument;
}
