import { z } from 'zod';

/** How an image wants to be run. */
export const ImageConfigSchema = z.object({
  env: z.array(z.string()),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  user: z.string().describe('Empty where the image names none.'),
  workdir: z.string().describe('Empty where the image names none.'),
  ports: z.array(z.int()).describe('The TCP ports that it exposes.'),
  volumes: z.array(z.string()),
});
export type ImageConfig = z.infer<typeof ImageConfigSchema>;

export const ImageSchema = z.object({
  digest: z.string().describe('Of its manifest, or of the index where there is one for each platform.'),
  names: z.array(z.string()).describe('All names that lead to it, in full.'),
  sizeBytes: z.int().describe('What its files take, those that it shares with other images included.'),
  layers: z.int(),
  pulledAtMs: z.number(),
  usedAtMs: z.number(),
  config: ImageConfigSchema,
});
export type Image = z.infer<typeof ImageSchema>;

export const ImagePageSchema = z.object({ images: z.array(ImageSchema) });
export type ImagePage = z.infer<typeof ImagePageSchema>;

const ImageNameSchema = z.string().min(1).max(512).describe('Such as `python:3.12-slim`.');
export const PullImageSchema = z
  .object({
    image: ImageNameSchema,
    missingOnly: z.boolean().default(false).describe('Asks no registry for an image that is here.'),
  })
  .strict();
export const FindImageSchema = z.object({ image: ImageNameSchema }).strict();
export const ImportImageSchema = z
  .object({
    name: ImageNameSchema.optional().describe('What it is to be called; absent: what the archive says.'),
  })
  .strict();

export const PullProgressSchema = z.object({
  state: z.enum(['resolving', 'fetching', 'unpacking', 'done']),
  totalBytes: z.int().describe('Of all layers that have to be fetched.'),
  fetchedBytes: z.int(),
  layers: z.array(
    z.object({
      digest: z.string(),
      totalBytes: z.int(),
      fetchedBytes: z.int(),
      state: z.enum(['waiting', 'fetching', 'fetched', 'unpacking', 'done']),
    }),
  ),
});
export type PullProgress = z.infer<typeof PullProgressSchema>;

/** A value of the answer to a pull or an import: how far it is or, as the last, what is here now. */
export const PullLineSchema = z.object({
  progress: PullProgressSchema.optional(),
  images: z.array(ImageSchema).optional(),
});
export type PullLine = z.infer<typeof PullLineSchema>;
