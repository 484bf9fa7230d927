/** What the store remembers: one file, replaced as a whole. */
import { join } from 'node:path';
import { mkdir } from 'node:fs/promises';
import { z } from 'zod';
import { readJson, writeFileAtomic } from '../../lib/atomic-file.ts';
import { ImageConfigSchema } from './manifest.ts';

const ImageRecordSchema = z.object({
  digest: z.string(),
  /** `pulling` until its last tree is committed. */
  state: z.enum(['pulling', 'whole']),
  /** `registry/repository` of those that were seen to give it. */
  repositories: z.array(z.string()),
  config: ImageConfigSchema,
  /** Compressed digest and the digest of what is in it, lowest first. */
  layers: z.array(z.object({ digest: z.string(), diffId: z.string(), sizeBytes: z.int() })),
  /** From the lowest to the one that sandboxes start from, for the ids of `owner`. */
  trees: z.array(z.string()),
  owner: z.string(),
  pulledAtMs: z.number(),
  usedAtMs: z.number(),
  /** Projects that use it, and when each did last. Absent: it was kept before projects were noted. */
  users: z.record(z.string(), z.number()).optional(),
});
export type ImageRecord = z.infer<typeof ImageRecordSchema>;

const FileSchema = z.object({
  images: z.record(z.string(), ImageRecordSchema),
  /** Names in full, without digests. */
  names: z.record(z.string(), z.object({ digest: z.string(), atMs: z.number() })),
  /** What unpacking each tree's layer took. */
  treeBytes: z.record(z.string(), z.number()),
});

export interface ImageIndex {
  readonly images: Map<string, ImageRecord>;
  readonly names: Map<string, { digest: string; atMs: number }>;
  readonly treeBytes: Map<string, number>;
  /** Resolves when what is in memory now is on disk. */
  save(): Promise<void>;
}

export async function openImageIndex(dir: string): Promise<ImageIndex> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const file = join(dir, 'index.json');
  // A cache: what cannot be read is fetched again.
  const found = FileSchema.safeParse(await readJson(file).catch(() => undefined)).data;
  const images = new Map(Object.entries(found?.images ?? {}));
  const names = new Map(Object.entries(found?.names ?? {}));
  const treeBytes = new Map(Object.entries(found?.treeBytes ?? {}));
  let writing: Promise<void> = Promise.resolve();
  let next: Promise<void> | undefined;
  return {
    images,
    names,
    treeBytes,
    save() {
      // Calls that come while one writes share the write after it.
      next ??= writing
        .catch(() => {})
        .then(() => {
          next = undefined;
          const text = JSON.stringify({
            images: Object.fromEntries(images),
            names: Object.fromEntries(names),
            treeBytes: Object.fromEntries(treeBytes),
          });
          writing = writeFileAtomic(file, text);
          return writing;
        });
      return next;
    },
  };
}
