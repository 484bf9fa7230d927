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

/** Ports of the two protocols have nothing in common but their numbers. */
const ProtocolSchema = z.enum(['tcp', 'udp']);

/** A port of the server's machine that leads to a port of a sandbox. */
export const PublishPortSchema = z
  .object({
    port: PortSchema.describe('The port inside.'),
    protocol: ProtocolSchema.default('tcp'),
    hostPort: z
      .int()
      .min(0)
      .max(65_535)
      .default(0)
      .describe("The port of the server's machine. 0 takes a free one."),
    address: z
      .union([z.ipv4(), z.ipv6()])
      .optional()
      .describe("The address of the server's machine that it listens on. Absent means the operator's first."),
  })
  .strict();
export type PublishPort = z.infer<typeof PublishPortSchema>;
export type PublishPortInput = z.input<typeof PublishPortSchema>;

export const PublishedPortSchema = z.object({
  protocol: ProtocolSchema,
  hostPort: PortSchema,
  port: PortSchema,
  address: z.string(),
  problem: z.string().optional().describe('Why the server that was asked does not listen on it.'),
});
export type PublishedPort = z.infer<typeof PublishedPortSchema>;
