import { CayError } from '@cay/sdk/protocol';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { decompress } from './compression.ts';
import { type Digest, damaged, readEnvelope } from './envelope.ts';
import type { Manifest } from './manifest.ts';
import { abortable, readManifest } from './open-archive.ts';
import { type Tree, type TreeProcessOptions, unpackTree } from './tree-process.ts';

export interface ReadArchiveOptions extends TreeProcessOptions {
  /** An empty directory for the tree; of a `part`, one that has the files of its template. */
  tree: Tree | ((manifest: Manifest) => Promise<Tree>);
  /**
   * An empty directory for the files of a memory image. Absent: the archive's memory is checked and dropped.
   */
  imageDir?: string;
  /** Bound on the unpacked bytes of tree and memory. Rejects `resource_exhausted` beyond. */
  maxBytes: number;
  /** Called before so many bytes are unpacked; if it throws, reading stops. */
  admit?(bytes: number): void | Promise<void>;
}

export interface ReadArchive {
  manifest: Manifest;
  digest: Digest;
}

/**
 * Unpacks an archive and resolves with its manifest. Rejects `invalid_argument` for a damaged archive. Damage
 * may be found at the end only: if this rejects, the caller must discard the content of the directories.
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
      await options.admit?.(chunk.length);
      yield chunk;
    }
  }
  try {
    const manifest = await readManifest(envelope);
    const part = (name: string) => counted(decompress(envelope.part(name), manifest.compression));
    const tree = typeof options.tree === 'function' ? await options.tree(manifest) : options.tree;
    await unpackTree(tree, part('tree'), options);
    for (const { name, bytes } of manifest.memory?.files ?? []) {
      const length = await save(part(`memory/${name}`), options.imageDir && join(options.imageDir, name));
      if (length !== bytes) throw damaged(`"${name}" has ${length} bytes and not ${bytes}`);
    }
    return { manifest, digest: await envelope.end() };
  } finally {
    await envelope.close();
  }
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
