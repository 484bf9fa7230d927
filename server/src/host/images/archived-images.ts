/** What images an archive has: of `docker save`, of an OCI layout, or the one that a root filesystem is. */
import { createReadStream } from 'node:fs';
import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import { openArchiveFile, type ArchiveFile } from './archive-file.ts';
import {
  chooseManifest,
  digestOf,
  MOST_MANIFEST_BYTES,
  parseConfig,
  parseManifest,
  requirePlatform,
  thisArchitecture,
  type ConfigFile,
} from './manifest.ts';

export interface ArchivedImage {
  digest: string;
  /** As the archive has them. */
  names: string[];
  file: ConfigFile;
  layers: { digest: string; sizeBytes: number; open(): AsyncIterable<Uint8Array> }[];
}

const SavedSchema = z
  .array(
    z.object({
      Config: z.string().max(512),
      RepoTags: z.array(z.string().max(512)).max(100).nullish(),
      Layers: z.array(z.string().max(512)).max(512),
    }),
  )
  .max(100);
const NAMES = ['io.containerd.image.name', 'org.opencontainers.image.ref.name'];

export async function archivedImages(path: string): Promise<ArchivedImage[]> {
  const archive = await openArchiveFile(path);
  // An archive that is both is read as a layout, whose digests are those of registries.
  if (archive.has('index.json') && archive.has('oci-layout')) return fromLayout(archive);
  if (archive.has('manifest.json')) return fromDocker(archive);
  return [await fromRoot(path)];
}

async function fromLayout(archive: ArchiveFile): Promise<ArchivedImage[]> {
  const what = 'the archive';
  const top = parseManifest(await archive.bytes('index.json', MOST_MANIFEST_BYTES), what);
  if (!('index' in top)) throw new CayError('invalid_argument', 'The index of the archive is none');
  const images: ArchivedImage[] = [];
  for (const { digest, annotations = {}, platform } of top.index.manifests) {
    if (platform && (platform.os !== 'linux' || platform.architecture !== thisArchitecture())) continue;
    let found = parseManifest(await checked(archive, digest), what);
    if ('index' in found)
      found = parseManifest(
        await checked(archive, chooseManifest(found.index, thisArchitecture(), what).digest),
        what,
      );
    if ('index' in found) throw new CayError('invalid_argument', 'An index of the archive leads to an index');
    const { config, layers } = found.manifest;
    images.push({
      digest,
      // A whole name is better than a tag alone.
      names: NAMES.flatMap((key) => annotations[key] ?? []).slice(0, 1),
      file: usable(parseConfig(await checked(archive, config.digest), what), layers.length),
      layers: layers.map((layer) => ({
        digest: layer.digest,
        sizeBytes: archive.size(blobPath(layer.digest)),
        open: () => archive.read(blobPath(layer.digest)),
      })),
    });
  }
  if (images.length === 0)
    throw new CayError('unsupported', `The archive has no image for linux/${thisArchitecture()}`);
  return images;
}

async function fromDocker(archive: ArchiveFile): Promise<ArchivedImage[]> {
  const text = (await archive.bytes('manifest.json', MOST_MANIFEST_BYTES)).toString('utf8');
  const parsed = SavedSchema.safeParse(safeJson(text));
  if (!parsed.success)
    throw new CayError('invalid_argument', 'The "manifest.json" of the archive is malformed');
  return Promise.all(
    parsed.data.map(async ({ Config, RepoTags, Layers }) => {
      const config = await archive.bytes(Config, MOST_MANIFEST_BYTES);
      const file = usable(parseConfig(config, `"${Config}"`), Layers.length);
      return {
        // There is no manifest: the digest of the configuration is what Docker calls the image's id.
        digest: digestOf(config),
        names: RepoTags ?? [],
        file,
        layers: Layers.map((name, at) => ({
          digest: file.diffIds[at]!,
          sizeBytes: archive.size(name),
          open: () => archive.read(name),
        })),
      };
    }),
  );
}

/** One layer, without a configuration. */
async function fromRoot(path: string): Promise<ArchivedImage> {
  const hash = createHash('sha256');
  let sizeBytes = 0;
  for await (const part of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    hash.update(part);
    sizeBytes += part.length;
  }
  const digest = `sha256:${hash.digest('hex')}`;
  const file: ConfigFile = {
    os: 'linux',
    architecture: thisArchitecture(),
    diffIds: [digest],
    config: { env: [], entrypoint: [], cmd: [], user: '', workdir: '', ports: [], volumes: [] },
  };
  return { digest, names: [], file, layers: [{ digest, sizeBytes, open: () => createReadStream(path) }] };
}

function usable(file: ConfigFile, layers: number): ConfigFile {
  requirePlatform(file, thisArchitecture(), 'the archive');
  if (file.diffIds.length !== layers)
    throw new CayError('invalid_argument', 'The archive has another number of layers than its configuration');
  return file;
}

const blobPath = (digest: string) => `blobs/sha256/${digest.slice('sha256:'.length)}`;

async function checked(archive: ArchiveFile, digest: string): Promise<Buffer> {
  const bytes = await archive.bytes(blobPath(digest), MOST_MANIFEST_BYTES);
  if (digestOf(bytes) === digest) return bytes;
  throw new CayError('invalid_argument', `The archive's "${digest}" is not what its digest says`);
}

function safeJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
