/** Images made by hand, and their way into a registry that speaks the distribution API. */
import { createHash } from 'node:crypto';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { encodeHeader, type Entry } from '../../../lib/tar/header.ts';
import { padding, tarEnd } from '../../../lib/tar/pack.ts';

export type TestEntry = Partial<Entry> & { name: string; content?: string | Buffer };

export interface TestImage {
  manifest: Buffer;
  /** Of the manifest. */
  digest: string;
  /** By digest: configuration and layers. */
  blobs: Map<string, Buffer>;
}

export interface TestConfig {
  Env?: string[];
  Entrypoint?: string[];
  Cmd?: string[];
  User?: string;
  WorkingDir?: string;
  ExposedPorts?: Record<string, object>;
  Volumes?: Record<string, object>;
}

export const sha256 = (bytes: Uint8Array) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

export function layerOf(entries: TestEntry[]): Buffer {
  const parts: Uint8Array[] = [];
  for (const { content = '', ...entry } of entries) {
    const bytes = Buffer.from(content);
    const type = entry.type ?? 'file';
    if (type === 'other') throw new Error('there is no header for it');
    const header = {
      mode: type === 'directory' ? 0o755 : 0o644,
      uid: 0,
      gid: 0,
      modifiedAtMs: 0,
      target: '',
    };
    parts.push(
      encodeHeader({ ...header, ...entry, type, sizeBytes: bytes.length }),
      bytes,
      padding(bytes.length),
    );
  }
  return Buffer.concat([...parts, tarEnd()]);
}

const COMPRESS = {
  gzip: (bytes: Buffer) => gzipSync(bytes, { level: 1 }),
  zstd: (bytes: Buffer) => zstdCompressSync(bytes),
  none: (bytes: Buffer) => bytes,
};

export function imageOf(
  layers: Buffer[],
  options: {
    config?: TestConfig;
    compress?: keyof typeof COMPRESS;
    architecture?: string;
    diffIds?: string[];
  } = {},
): TestImage {
  const {
    config = {},
    compress = 'gzip',
    architecture = process.arch === 'arm64' ? 'arm64' : 'amd64',
  } = options;
  const packed = layers.map((layer) => COMPRESS[compress](layer));
  const file = Buffer.from(
    JSON.stringify({
      architecture,
      os: 'linux',
      config,
      rootfs: { type: 'layers', diff_ids: options.diffIds ?? layers.map(sha256) },
    }),
  );
  const suffix = compress === 'none' ? '' : `+${compress}`;
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: {
        mediaType: 'application/vnd.oci.image.config.v1+json',
        digest: sha256(file),
        size: file.length,
      },
      layers: packed.map((bytes) => ({
        mediaType: `application/vnd.oci.image.layer.v1.tar${suffix}`,
        digest: sha256(bytes),
        size: bytes.length,
      })),
    }),
  );
  const blobs = new Map([file, ...packed].map((bytes) => [sha256(bytes), bytes] as const));
  return { manifest, digest: sha256(manifest), blobs };
}

/** An index of images for several platforms. */
export function indexOf(images: { image: TestImage; architecture: string }[]): Buffer {
  return Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests: images.map(({ image: { manifest, digest }, architecture }) => ({
        mediaType: 'application/vnd.oci.image.manifest.v1+json',
        digest,
        size: manifest.length,
        platform: { os: 'linux', architecture },
      })),
    }),
  );
}

export interface PushTarget {
  /** `host:port`. */
  address: string;
  authorization?: string;
}

export async function pushImage(
  { address, authorization }: PushTarget,
  repository: string,
  tag: string,
  { manifest, blobs }: TestImage,
): Promise<void> {
  const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
  for (const [digest, bytes] of blobs) {
    const begun = await fetch(`http://${address}/v2/${repository}/blobs/uploads/`, {
      method: 'POST',
      headers,
    });
    const to = new URL(begun.headers.get('location')!, `http://${address}`);
    to.searchParams.set('digest', digest);
    const put = await fetch(to, { method: 'PUT', headers, body: new Uint8Array(bytes) });
    if (put.status !== 201) throw new Error(`cannot push ${digest}: ${put.status} ${await put.text()}`);
  }
  await pushManifest(
    { address, ...(authorization !== undefined && { authorization }) },
    repository,
    tag,
    manifest,
  );
}

export async function pushManifest(
  { address, authorization }: PushTarget,
  repository: string,
  tag: string,
  manifest: Buffer,
): Promise<void> {
  const { mediaType } = JSON.parse(manifest.toString()) as { mediaType: string };
  const put = await fetch(`http://${address}/v2/${repository}/manifests/${tag}`, {
    method: 'PUT',
    headers: { 'content-type': mediaType, ...(authorization !== undefined && { authorization }) },
    body: new Uint8Array(manifest),
  });
  if (put.status !== 201) throw new Error(`cannot push ${tag}: ${put.status} ${await put.text()}`);
}
