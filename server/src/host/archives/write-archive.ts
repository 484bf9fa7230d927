import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { compress } from './compression.ts';
import { type Part, writeEnvelope } from './envelope.ts';
import { type Manifest, ManifestSchema, MAX_MANIFEST_BYTES } from './manifest.ts';
import { packTree, type Tree, type TreeProcessOptions } from './tree-process.ts';

export interface WriteArchiveOptions extends TreeProcessOptions {
  manifest: Pick<Manifest, 'snapshot' | 'sandbox' | 'spec' | 'runtime' | 'whole' | 'part'>;
  /** Must not change meanwhile. */
  tree: Tree;
  /** The files of a memory image, and its `compatibility`. */
  image?: { dir: string; compatibility: string };
  /** Signs the digest of the archive. */
  sign?(digest: string): string;
  /** Default `zstd`. */
  compression?: Manifest['compression'];
}

/**
 * A snapshot as one portable stream, no faster than the consumer reads. The format is described in
 * `envelope.ts`.
 */
export async function* writeArchive(
  options: WriteArchiveOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const { tree, image, signal, compression = 'zstd' } = options;
  const files = image ? await imageFiles(image.dir) : [];
  const memory = image && { compatibility: image.compatibility, files };
  function* parts(): Generator<Part> {
    yield { name: 'tree', content: compress(packTree(tree, options), compression) };
    for (const { name, bytes } of files) {
      const content =
        bytes === 0
          ? []
          : createReadStream(join(image!.dir, name), { end: bytes - 1, highWaterMark: 1024 * 1024, signal });
      yield { name: `memory/${name}`, content: compress(wholly(content, name, bytes), compression) };
    }
  }
  const text = manifestText({ ...options.manifest, compression, ...(memory && { memory }) });
  yield* writeEnvelope(text, parts(), options.sign);
}

/**
 * The same of a tree that comes as a tar archive, with names relative to its root: `tree` as it is, or
 * `packed` by zstd already.
 */
export async function* archiveOfTree(
  options: Pick<WriteArchiveOptions, 'manifest' | 'sign'> &
    ({ tree: AsyncIterable<Uint8Array> } | { packed: AsyncIterable<Uint8Array> }),
): AsyncGenerator<Uint8Array, void, undefined> {
  const text = manifestText({ ...options.manifest, compression: 'zstd' });
  const content = 'packed' in options ? options.packed : compress(options.tree, 'zstd');
  yield* writeEnvelope(text, [{ name: 'tree', content }], options.sign);
}

function manifestText(given: Omit<Manifest, 'format' | 'version'>): Buffer {
  const { compression, snapshot, sandbox, spec, runtime, whole, part, memory } = given;
  const manifest: Manifest = ManifestSchema.parse({
    format: 'cay-snapshot',
    version: 1,
    compression,
    snapshot,
    sandbox,
    spec,
    runtime,
    ...(whole && { whole }),
    ...(part && { part }),
    ...(memory && { memory }),
  });
  const text = Buffer.from(`${JSON.stringify(manifest, undefined, 2)}\n`);
  if (text.length <= MAX_MANIFEST_BYTES) return text;
  throw new CayError(
    'failed_precondition',
    `Cannot archive snapshot "${snapshot}": its spec has more than ${MAX_MANIFEST_BYTES} bytes`,
  );
}

async function imageFiles(dir: string): Promise<{ name: string; bytes: number }[]> {
  const names = (await readdir(dir)).sort();
  return Promise.all(names.map(async (name) => ({ name, bytes: (await stat(join(dir, name))).size })));
}

async function* wholly(
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  name: string,
  bytes: number,
): AsyncGenerator<Uint8Array> {
  let seen = 0;
  for await (const chunk of content) {
    seen += chunk.length;
    yield chunk;
  }
  if (seen !== bytes)
    throw new CayError('internal', `The image's file "${name}" has changed while it was archived`);
}
