import { z } from 'zod';
import { SecretNameSchema } from './egress.ts';

/**
 * A Secret is a credential of a project that rules of network policies put on requests. The server seals it,
 * puts it on requests outside of sandboxes, and never answers with its value.
 */
export const SecretSchema = z.object({
  name: SecretNameSchema,
  version: z.int().describe('Grows by one whenever the value is set.'),
  bytes: z.int().describe('The length of its value.'),
  createdAtMs: z.int(),
  updatedAtMs: z.int().describe('When its value was set.'),
});
export type Secret = z.infer<typeof SecretSchema>;

export const MAX_SECRET_BYTES = 65_536;

export const SetSecretSchema = z
  .object({
    value: z
      .string()
      .min(1)
      .refine(
        (text) => new TextEncoder().encode(text).length <= MAX_SECRET_BYTES,
        `must have at most ${MAX_SECRET_BYTES} bytes`,
      )
      .describe(`At most ${MAX_SECRET_BYTES} bytes. It is answered by no call.`),
  })
  .strict();
export type SetSecret = z.infer<typeof SetSecretSchema>;

export const SecretListSchema = z.object({ secrets: z.array(SecretSchema) });

/** A secret, and whose network policies put it on requests. */
export const ShownSecretSchema = SecretSchema.extend({
  usedBy: z
    .array(z.string())
    .describe('Ids of sandboxes and the project whose policies name it: the first hundred.'),
});
export type ShownSecret = z.infer<typeof ShownSecretSchema>;
