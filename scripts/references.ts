/** The generated references, by the path of their file below `docs/reference`. */
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { memoryBackend } from '../server/src/backends/memory/memory.ts';
import { serve } from '../server/src/serve.ts';
import { apiReference, type OpenApiDocument } from './api-reference.ts';
import { errorReference } from './error-reference.ts';

export const REFERENCE_DIR = join(import.meta.dirname, '../docs/reference');
const PROTOCOL_DIR = join(import.meta.dirname, '../sdk/src/protocol');

export async function references(): Promise<Record<string, string>> {
  const names = (await readdir(PROTOCOL_DIR)).filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts')).toSorted();
  const sources = await Promise.all(names.map((name) => readFile(join(PROTOCOL_DIR, name), 'utf8')));
  return {
    'api.md': apiReference(await openApiDocument(), sources),
    'errors.md': errorReference(sources[names.indexOf('error.ts')]!),
  };
}

/** As a running server tells it. */
async function openApiDocument(): Promise<OpenApiDocument> {
  const dataDir = await mkdtemp(join(tmpdir(), 'cay-reference-'));
  const server = await serve({ backend: memoryBackend(), dataDir, port: 0, log: pino({ level: 'silent' }) });
  try {
    return (await (await fetch(`${server.url}/openapi.json`)).json()) as OpenApiDocument;
  } finally {
    await server.close();
    await rm(dataDir, { recursive: true, force: true });
  }
}
