/** The generated references, by the path of their file below `docs/reference`. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { memoryServer } from '../test/support/memory-server.ts';
import { apiReference, type OpenApiDocument } from './api-reference.ts';
import { errorReference } from './error-reference.ts';
import { settingsReference } from './settings-reference.ts';

export const REFERENCE_DIR = join(import.meta.dirname, '../docs/reference');
const ERROR_CODES = join(import.meta.dirname, '../sdk/src/protocol/error.ts');

export async function references(): Promise<Record<string, string>> {
  return {
    'api.md': apiReference(await openApiDocument()),
    'settings.md': settingsReference(),
    'errors.md': errorReference(await readFile(ERROR_CODES, 'utf8')),
  };
}

/** As a running server tells it. */
async function openApiDocument(): Promise<OpenApiDocument> {
  await using server = await memoryServer();
  return (await (await fetch(`${server.url}/openapi.json`)).json()) as OpenApiDocument;
}
