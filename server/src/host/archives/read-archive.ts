import { CayError } from '@cay/sdk/protocol';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { decompress } from './compression.ts';
import { type Digest, damaged, type EnvelopeReader, readEnvelope } from './envelope.ts';
import { type Manifest, ManifestSchema, MAX_MANIFEST_BYTES } from './manifest.ts';
import { type Tree, type TreeProcessOptions, unpackTree } from './tree-process.ts';

export interface ReadArchiveOptions extends TreeProcessOptions {
  /** An empty directory, which the archive's tree becomes. */
  tree: Tree;
  /**
   * An empty directory for the files of a memory image. Absent: an archive's memory is checked and dropped.
   */
  imageDir?: string;
  /** Of tree and memory together, as they are unpacked. Rejects `resource_exhausted` beyond. */
  maxBytes: number;
  /** Called before so many bytes are unpacked; what it throws ends the reading. */
  admit?(bytes: number): void;
}

export interface ReadArchive {
  manifest: Manifest;
  digest: Digest;
}

/**
 * Unpacks an archive and resolves what it says about itself. Rejects `invalid_argument` for one that is
 * damaged or is none. Whether it is whole is known at its end only: when this rejects, whatever is in the
 * directories has to be thrown away.
 */
export async function readArchive(
  source: AsyncIterable<Uint8Array>,
  options: ReadArchiveOptions,
): Promise<ReadArchive> {
  const envelope = readEnvelope(abortable(source, options.signal));
  let left = options.maxBytes;
  async function* counted(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const chunk of content) {
      left -= chunk.length;
      if (left < 0)
        throw new CayError('resource_exhausted', `The archive has more than ${options.maxBytes} bytes`);
      options.admit?.(chunk.length);
      yield chunk;
    }
  }
  try {
    const manifest = await readManifest(envelope);
    const part = (name: string) => counted(decompress(envelope.part(name), manifest.compression));
    await unpackTree(options.tree, part('tree'), options);
    for (const { name, bytes } of manifest.memory?.files ?? []) {
      const length = await save(part(`memory/${name}`), options.imageDir && join(options.imageDir, name));
      if (length !== bytes) throw damaged(`"${name}" has ${length} bytes and not ${bytes}`);
    }
    return { manifest, digest: await envelope.end() };
  } finally {
    await envelope.close();
  }
}

async function readManifest(envelope: EnvelopeReader): Promise<Manifest> {
  const text = (await envelope.manifest(MAX_MANIFEST_BYTES)).toString();
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw damaged('its manifest is not JSON', error);
  }
  const result = ManifestSchema.safeParse(parsed);
  if (!result.success)
    throw new CayError('invalid_argument', 'The archive is of a kind that is not known', {
      cause: result.error,
    });
  return result.data;
}

async function save(content: AsyncIterable<Uint8Array>, path: string | undefined): Promise<number> {
  const file = path === undefined ? undefined : await open(path, 'wx', 0o600);
  let length = 0;
  try {
    for await (const chunk of content) {
      await file?.writeFile(chunk);
      length += chunk.length;
    }
  } finally {
    await file?.close();
  }
  return length;
}

/** A source that says nothing must not hold up whoever gives up. */
async function* abortable(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  const aborted = Promise.withResolvers<never>();
  aborted.promise.catch(() => {});
  const onAbort = () => aborted.reject(signal?.reason);
  signal?.throwIfAborted();
  signal?.addEventListener('abort', onAbort, { once: true });
  const iterator = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await Promise.race([iterator.next(), aborted.promise]);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    signal?.removeEventListener('abort', onAbort);
    // A generator that is still busy would only answer when it is done.
    const returned = Promise.resolve(iterator.return?.()).catch(() => {});
    if (!signal?.aborted) await returned;
  }
}
