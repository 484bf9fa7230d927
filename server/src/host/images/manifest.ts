/**
 * The documents of an image: the index that names a manifest for each platform, the manifest that names
 * configuration and layers, the configuration that says how the image wants to be run. All come from a
 * registry or an archive and are hostile: bounded, and checked before anything of them is used.
 */
import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import { DIGEST } from './reference.ts';

export const MOST_MANIFEST_BYTES = 4 * 1024 * 1024;
const MOST_LAYERS = 512;
const MOST_MANIFESTS = 1000;

export const INDEX_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
];
export const MANIFEST_TYPES = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
];

const DescriptorSchema = z.object({
  mediaType: z.string().max(256).default(''),
  digest: z.string().regex(DIGEST),
  size: z.int().min(0),
});
export type Descriptor = z.infer<typeof DescriptorSchema>;

const PlatformSchema = z.object({
  os: z.string().max(64),
  architecture: z.string().max(64),
  variant: z.string().max(64).optional(),
});

const IndexSchema = z.object({
  manifests: z
    .array(
      DescriptorSchema.extend({
        platform: PlatformSchema.optional(),
        annotations: z.record(z.string(), z.string()).optional(),
      }),
    )
    .max(MOST_MANIFESTS),
});
export type Index = z.infer<typeof IndexSchema>;

const ManifestSchema = z.object({
  config: DescriptorSchema,
  layers: z.array(DescriptorSchema).max(MOST_LAYERS),
});
export type Manifest = z.infer<typeof ManifestSchema>;

const NUL = '\u0000';
const text = (max: number) =>
  z
    .string()
    .max(max)
    .refine((each) => !each.includes(NUL));
const texts = (most: number) =>
  z
    .array(text(128 * 1024))
    .max(most)
    .nullish();
const keys = z.record(text(4096), z.unknown()).nullish();

const ConfigFileSchema = z.object({
  os: z.string().max(64).default('linux'),
  architecture: z.string().max(64).default(''),
  config: z
    .object({
      Env: texts(1024),
      Entrypoint: texts(4096),
      Cmd: texts(4096),
      User: text(256).nullish(),
      WorkingDir: text(4096).nullish(),
      ExposedPorts: keys,
      Volumes: keys,
    })
    .nullish(),
  rootfs: z.object({ diff_ids: z.array(z.string().regex(DIGEST)).max(MOST_LAYERS) }),
});

/** How an image wants to be run. */
export const ImageConfigSchema = z.object({
  env: z.array(z.string()),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  user: z.string(),
  workdir: z.string(),
  /** TCP ports. */
  ports: z.array(z.int()),
  volumes: z.array(z.string()),
});
export type ImageConfig = z.infer<typeof ImageConfigSchema>;

export interface ConfigFile {
  os: string;
  architecture: string;
  config: ImageConfig;
  /** The digest of each layer's archive, uncompressed. */
  diffIds: string[];
}

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** An index or a manifest, decided by its fields; the media type is only a claim. */
export function parseManifest(bytes: Uint8Array, what: string): { index: Index } | { manifest: Manifest } {
  const json = parse(bytes, what) as { manifests?: unknown; schemaVersion?: unknown } | null;
  if (json?.schemaVersion === 1)
    throw malformed(what, 'it has schema version 1, which nobody makes any more');
  return Array.isArray(json?.manifests)
    ? { index: check(IndexSchema, json, what) }
    : { manifest: check(ManifestSchema, json, what) };
}

export function parseConfig(bytes: Uint8Array, what: string): ConfigFile {
  const { os, architecture, config, rootfs } = check(ConfigFileSchema, parse(bytes, what), what);
  const workdir = config?.WorkingDir || '';
  return {
    os,
    architecture,
    diffIds: rootfs.diff_ids,
    config: {
      env: (config?.Env ?? []).filter((line) => /^[A-Za-z_][A-Za-z0-9_]{0,255}=/.test(line)),
      entrypoint: config?.Entrypoint ?? [],
      cmd: config?.Cmd ?? [],
      user: config?.User ?? '',
      workdir: workdir === '' || workdir.startsWith('/') ? workdir : `/${workdir}`,
      ports: Object.keys(config?.ExposedPorts ?? {})
        .flatMap(portOf)
        .slice(0, 64),
      volumes: Object.keys(config?.Volumes ?? {}).slice(0, 256),
    },
  };
}

/** `8080`, `8080/tcp`; others are not TCP. */
function portOf(key: string): number[] {
  const port = Number(/^([0-9]{1,5})(?:\/tcp)?$/.exec(key)?.[1] ?? 0);
  return port > 0 && port < 65_536 ? [port] : [];
}

/** The manifest of an index for this machine. */
export function chooseManifest(index: Index, architecture: string, what: string): Descriptor {
  const fitting = index.manifests.filter(
    ({ platform }) => platform?.os === 'linux' && platform.architecture === architecture,
  );
  // Of several variants of a processor, the oldest runs everywhere.
  const chosen =
    fitting.find(({ platform }) => platform?.variant === undefined || platform.variant === 'v8') ??
    fitting[0] ??
    // An index without platforms, such as of one image alone.
    (index.manifests.length === 1 && index.manifests[0]!.platform === undefined
      ? index.manifests[0]
      : undefined);
  if (chosen) return chosen;
  const there = index.manifests.flatMap(({ platform }) =>
    platform ? [`${platform.os}/${platform.architecture}`] : [],
  );
  throw new CayError('unsupported', `${what} has no manifest for linux/${architecture}`, {
    details: { platforms: [...new Set(there)].slice(0, 32) },
  });
}

export function requirePlatform(file: ConfigFile, architecture: string, what: string): void {
  if (file.os === 'linux' && (file.architecture === '' || file.architecture === architecture)) return;
  throw new CayError(
    'unsupported',
    `${what} is for ${file.os}/${file.architecture}, and this machine is linux/${architecture}`,
  );
}

/** What this machine's processor is called in images. */
export function thisArchitecture(): string {
  return process.arch === 'arm64' ? 'arm64' : process.arch === 'x64' ? 'amd64' : process.arch;
}

function parse(bytes: Uint8Array, what: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (cause) {
    throw malformed(what, 'it is not JSON', cause);
  }
}

function check<T extends z.ZodType>(schema: T, json: unknown, what: string): z.infer<T> {
  const { success, data, error } = schema.safeParse(json);
  if (success) return data;
  const issue = error.issues[0];
  throw malformed(what, `"${issue?.path.join('.').slice(0, 100)}" ${issue?.message}`);
}

function malformed(what: string, why: string, cause?: unknown): CayError {
  return new CayError('invalid_argument', `Cannot use ${what}: ${why}`, { cause });
}
