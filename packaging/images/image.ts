/**
 * Images without a daemon: one archive that is an OCI image layout and what `docker save` writes at the same
 * time, so that `docker load`, `podman load`, `ctr images import`, `skopeo copy oci-archive:` and `crane
 * push` all take it. The same files give the same digests.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { fileHeader, packFile, padding, symlinkHeader, tarEnd } from '../../server/src/lib/tar/pack.ts';

export interface ImageOptions {
  /** `repository:tag`. */
  name: string;
  /** A tar of the root filesystem. */
  layer: AsyncIterable<Uint8Array>;
  entrypoint?: string[];
  cmd?: string[];
  env?: string[];
  user?: string;
  workdir?: string;
  /** Smaller, and slower to write. */
  compress?: boolean;
}

interface Blob {
  mediaType: string;
  digest: string;
  size: number;
}

/** Writes the archive to `file`. Resolves with the digest of the image's manifest. */
export async function writeImage(file: string, options: ImageOptions): Promise<string> {
  const { name, layer, entrypoint, cmd, env, user, workdir, compress = false } = options;
  const scratch = await mkdtemp(`${tmpdir()}/cay-image-layer-`);
  try {
    const layerFile = `${scratch}/layer`;
    const plain = createHash('sha256');
    const counted = async function* () {
      for await (const part of layer) {
        plain.update(part);
        yield part;
      }
    };
    if (compress)
      await pipeline(Readable.from(counted()), createGzip({ level: 6 }), createWriteStream(layerFile));
    else await pipeline(Readable.from(counted()), createWriteStream(layerFile));
    const mediaType = `application/vnd.oci.image.layer.v1.tar${compress ? '+gzip' : ''}`;
    const stored: Blob = { mediaType, digest: await digestOf(layerFile), size: (await stat(layerFile)).size };

    const config = json({
      architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
      os: 'linux',
      config: {
        ...(entrypoint && { Entrypoint: entrypoint }),
        ...(cmd && { Cmd: cmd }),
        ...(user !== undefined && { User: user }),
        ...(workdir !== undefined && { WorkingDir: workdir }),
        Env: env ?? ['PATH=/usr/local/bin:/usr/bin:/bin'],
      },
      rootfs: { type: 'layers', diff_ids: [`sha256:${plain.digest('hex')}`] },
    });
    const configBlob = blobOf('application/vnd.oci.image.config.v1+json', config);
    const manifest = json({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: configBlob,
      layers: [stored],
    });
    const manifestBlob = blobOf('application/vnd.oci.image.manifest.v1+json', manifest);
    const called = {
      'io.containerd.image.name': fullName(name),
      'org.opencontainers.image.ref.name': name.slice(name.lastIndexOf(':') + 1),
    };
    const index = json({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests: [{ ...manifestBlob, annotations: called }],
    });
    const forDocker = json([{ Config: pathOf(configBlob), RepoTags: [name], Layers: [pathOf(stored)] }]);

    async function* archive(): AsyncIterable<Uint8Array> {
      yield* packFile('oci-layout', json({ imageLayoutVersion: '1.0.0' }));
      yield* packFile('index.json', index);
      yield* packFile('manifest.json', forDocker);
      yield* packFile(pathOf(manifestBlob), manifest);
      yield* packFile(pathOf(configBlob), config);
      yield fileHeader(pathOf(stored), stored.size);
      yield* createReadStream(layerFile) as AsyncIterable<Buffer>;
      yield padding(stored.size);
      yield tarEnd();
    }
    await pipeline(Readable.from(archive()), createWriteStream(file));
    return manifestBlob.digest;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

export interface LayerFile {
  path: string;
  mode: number;
  content: Buffer;
}

/** A link of the layer. */
export interface LayerLink {
  path: string;
  target: string;
}

/**
 * A layer of files; directories are made with them. What is in a file of this machine is read when its turn
 * comes.
 */
export async function* layerOf(
  files: Iterable<LayerFile | LayerLink | { path: string; mode: number; source: string }>,
): AsyncIterable<Uint8Array> {
  for (const file of files) {
    if ('target' in file) yield symlinkHeader(file.path, file.target);
    else yield* packFile(file.path, 'content' in file ? file.content : await readFile(file.source), file);
  }
  yield tarEnd();
}

/** A layer that holds one program of this machine. */
export async function programLayer(source: string, path: string): Promise<AsyncIterable<Uint8Array>> {
  return layerOf([{ path, mode: 0o755, content: await readFile(source) }]);
}

const json = (value: unknown) => Buffer.from(JSON.stringify(value));
const pathOf = ({ digest }: Blob) => `blobs/sha256/${digest.slice('sha256:'.length)}`;

function blobOf(mediaType: string, content: Buffer): Blob {
  return {
    mediaType,
    digest: `sha256:${createHash('sha256').update(content).digest('hex')}`,
    size: content.length,
  };
}

async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const part of createReadStream(file)) hash.update(part as Buffer);
  return `sha256:${hash.digest('hex')}`;
}

/** With the registry that an image has whose name begins with none. */
function fullName(name: string): string {
  const [first = '', ...rest] = name.split('/');
  if (rest.length > 0 && (/[.:]/.test(first) || first === 'localhost')) return name;
  return rest.length > 0 ? `docker.io/${name}` : `docker.io/library/${name}`;
}
