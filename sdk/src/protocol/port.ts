import { z } from 'zod';

export const PortVisibilitySchema = z.enum(['private', 'public']);
export const PortSchema = z.int().min(1).max(65_535);

/** A port that may be reached from outside through the server. `private` needs the preview token. */
export const ExposedPortSchema = z.object({
  port: PortSchema,
  visibility: PortVisibilitySchema,
  url: z.string(),
  openUrl: z
    .string()
    .describe(
      'Opens in a browser as it is. Of a private port it has the token in its query, which the server replaces with a cookie: share it only with those who may see the port.',
    ),
  token: z
    .string()
    .optional()
    .describe("Given to those who may see the sandbox; never to the preview's visitors."),
});
export type ExposedPort = z.infer<typeof ExposedPortSchema>;
