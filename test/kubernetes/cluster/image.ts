/** Images without a daemon: a docker-archive of one layer, as `ctr images import` takes it. */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { BLOCK, encodeHeader, paddingOf } from '../../../server/src/lib/tar-header.ts';

export interface ImageOptions {
  /** `repository:tag`. */
  name: string;
  /** A tar of the root filesystem. */
  layer: AsyncIterable<Uint8Array>;
  entrypoint?: string[];
  env?: string[];
}

/** Writes the archive to `file`. */
export async function writeImage(file: string, { name, layer, entrypoint, env }: ImageOptions): Promise<void> {
  const scratch = await mkdtemp('/tmp/cay-image-layer-');
  try {
    const layerFile = `${scratch}/layer.tar`;
    await pipeline(Readable.from(layer), createWriteStream(layerFile));
    const digest = createHash('sha256');
    for await (const part of createReadStream(layerFile)) digest.update(part as Buffer);
    const config = Buffer.from(
      JSON.stringify({
        architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
        os: 'linux',
        config: { ...(entrypoint && { Entrypoint: entrypoint }), Env: env ?? ['PATH=/usr/local/bin:/usr/bin:/bin'] },
        rootfs: { type: 'layers', diff_ids: [`sha256:${digest.digest('hex')}`] },
      }),
    );
    const configName = `${createHash('sha256').update(config).digest('hex')}.json`;
    const manifest = Buffer.from(JSON.stringify([{ Config: configName, RepoTags: [name], Layers: ['layer.tar'] }]));
    const { size } = await stat(layerFile);
    async function* archive(): AsyncIterable<Uint8Array> {
      yield* entry('manifest.json', manifest);
      yield* entry(configName, config);
      yield header('layer.tar', size);
      yield* createReadStream(layerFile) as AsyncIterable<Buffer>;
      yield Buffer.alloc(paddingOf(size) + 2 * BLOCK);
    }
    await pipeline(Readable.from(archive()), createWriteStream(file));
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

export interface LayerFile {
  path: string;
  mode: number;
  content: Buffer;
}

/** A layer of a few files; directories are made with them. */
export async function* layerOf(files: LayerFile[]): AsyncIterable<Uint8Array> {
  for (const { path, mode, content } of files) yield* entry(path, content, mode);
  yield Buffer.alloc(2 * BLOCK);
}

/** A layer that holds one program of this machine. */
export async function programLayer(source: string, path: string): Promise<AsyncIterable<Uint8Array>> {
  return layerOf([{ path, mode: 0o755, content: await readFile(source) }]);
}

function* entry(name: string, content: Buffer, mode = 0o644): Iterable<Uint8Array> {
  yield header(name, content.length, mode);
  yield content;
  yield Buffer.alloc(paddingOf(content.length));
}

function header(name: string, sizeBytes: number, mode = 0o644): Buffer {
  return encodeHeader({ name, type: 'file', sizeBytes, mode, uid: 0, gid: 0, modifiedAtMs: 0, target: '' });
}
