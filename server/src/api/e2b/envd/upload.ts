/** `POST /files`: one file as the body, or several as a form. */
import type { IncomingMessage } from 'node:http';
import { posix } from 'node:path';
import { createGunzip } from 'node:zlib';
import { CayError } from '@cay/sdk/protocol';
import { lentBodyOf } from '../../http/request-body.ts';
import { changesOf, filesOf, resolvePath, type EnvdContext } from './context.ts';
import { givenEncoding } from './encoding.ts';
import { metadataOf, requireMetadata, writeMetadata } from './file-metadata.ts';
import { boundaryOf, readParts } from './multipart.ts';
import type { Uploads } from './uploads.ts';

interface Written {
  path: string;
  name: string;
  type: 'file';
  metadata?: Record<string, string>;
}

export async function upload(
  context: EnvdContext,
  request: IncomingMessage,
  uploads: Uploads,
  given: string | undefined,
): Promise<Written[]> {
  const contentType = request.headers['content-type'] ?? '';
  const metadata = metadataOf(request.headers);
  const body =
    givenEncoding(request.headers['content-encoding']) === 'gzip' ? unpacked(request) : lentBodyOf(request);
  if (/^application\/octet-stream\b/i.test(contentType)) {
    if (given === undefined)
      throw new CayError('invalid_argument', 'path query parameter is required for raw body upload');
    return [await write(context, uploads, { path: await resolvePath(context, given), data: body, metadata })];
  }
  if (!/^multipart\//i.test(contentType)) {
    throw new CayError(
      'invalid_argument',
      `unsupported content type: ${contentType.slice(0, 80)}, expected multipart/form-data or application/octet-stream`,
    );
  }
  const written: Written[] = [];
  for await (const part of readParts(body, boundaryOf(contentType))) {
    if (part.name !== 'file') continue;
    const path = await resolvePath(context, given ?? part.filename ?? '');
    if (written.some((file) => file.path === path)) {
      throw new CayError(
        'invalid_argument',
        `you cannot upload multiple files to the same path '${path}' in one upload request`,
      );
    }
    written.push(await write(context, uploads, { path, data: part.data, metadata }));
  }
  return written;
}

interface WholeFile {
  path: string;
  data: AsyncIterable<Uint8Array>;
  metadata: Record<string, string>;
}

async function write(
  context: EnvdContext,
  uploads: Uploads,
  { path, data, metadata }: WholeFile,
): Promise<Written> {
  const changes = await changesOf(context);
  const noted = Object.keys(metadata).length > 0;
  if (noted) {
    await changes.mkdir(posix.dirname(path));
    await requireMetadata(context, posix.dirname(path));
  }
  try {
    await changes.write(path, data, {
      signal: context.signal,
      onLook: (exists) => uploads.note(context.row.id, path, exists ? 'replaced' : 'made'),
    });
  } catch (error) {
    const there = await filesOf(context)
      .stat(path, { follow: true })
      .catch(() => undefined);
    if (there?.type !== 'directory') throw error;
    throw new CayError('invalid_argument', `path is a directory: ${path}`, { cause: error });
  }
  await writeMetadata(context, path, metadata);
  return { path, name: posix.basename(path), type: 'file', ...(noted && { metadata }) };
}

/** A body that is not valid gzip is an error of the client. */
async function* unpacked(request: IncomingMessage): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip();
  request.on('error', (error) => gunzip.destroy(error));
  request.on('aborted', () => gunzip.destroy(new CayError('cancelled', 'The caller disconnected')));
  try {
    for await (const chunk of request.pipe(gunzip) as AsyncIterable<Buffer>) yield chunk;
  } catch (error) {
    throw error instanceof CayError
      ? error
      : new CayError('invalid_argument', 'error decompressing request body', { cause: error });
  }
}
