import { z } from 'zod';

/** Null is no maximum: unlimited may be asked for too. */
const MaximaSchema = z.object({
  cpus: z.number().nullable(),
  memoryBytes: z.int().nullable(),
  diskBytes: z.int().nullable(),
  pids: z.int().nullable(),
  openFiles: z.int(),
  /** Of a sandbox, from its start or from when it is set. */
  timeoutMs: z.int().nullable(),
  /** Commands of one sandbox that run at once. */
  commands: z.int(),
});

/** What the operator of the server lets clients ask for. */
export const PolicyFactsSchema = z.object({
  /** Names of isolations; null is every one that isolates. */
  runtimes: z.array(z.string()).nullable(),
  /** Patterns of image names; null is any image. */
  images: z.array(z.string()).nullable(),
  /** What a sandbox gets that asks for nothing else. */
  defaults: MaximaSchema.omit({ commands: true }),
  /** The most that one sandbox may ask for. A limit that the backend cannot enforce is not held to it. */
  maxima: MaximaSchema,
});
export type PolicyFacts = z.infer<typeof PolicyFactsSchema>;
