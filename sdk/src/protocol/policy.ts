import { z } from 'zod';

/** Null is no maximum: unlimited may be asked for too. */
const MaximaSchema = z.object({
  cpus: z.number().nullable(),
  memoryBytes: z.int().nullable(),
  diskBytes: z.int().nullable(),
  pids: z.int().nullable(),
  openFiles: z.int(),
  timeoutMs: z.int().nullable().describe('Of a sandbox, from its start or from when it is set.'),
  commands: z.int().describe('Commands of one sandbox that run at once.'),
});

/** What the operator of the server lets clients ask for. */
export const PolicyFactsSchema = z.object({
  runtimes: z.array(z.string()).nullable().describe('Names of isolations; null is every one that isolates.'),
  images: z.array(z.string()).nullable().describe('Patterns of image names; null is any image.'),
  defaults: MaximaSchema.omit({ commands: true }).describe('What a sandbox gets that asks for nothing else.'),
  maxima: MaximaSchema.describe(
    'The most that one sandbox may ask for. A limit that the backend cannot enforce is not held to it.',
  ),
});
export type PolicyFacts = z.infer<typeof PolicyFactsSchema>;
