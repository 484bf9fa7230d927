import { z } from 'zod';
import { CayEventSchema } from './event.ts';

/**
 * A Webhook is an address that gets a project's events, each in a request of its own, in their order, and at
 * least once.
 *
 * What is not answered with a 2xx is sent again, later and later. After a day of nothing but failures the
 * webhook is disabled; a test that succeeds enables it, and it goes on where it stopped. Every request is
 * signed with the webhook's secret:
 *
 *     Cay-Signature: t=1767225600,v1=<HMAC-SHA256 of "1767225600." and the body, in hex>
 */
export const WebhookSchema = z.object({
  id: z.string(),
  project: z.string(),
  url: z.string(),
  types: z
    .array(z.string())
    .describe('Types such as `sandbox.created`, or all that begin so as `sandbox.*`; none is all.'),
  createdAtMs: z.int(),
  deliveredTo: z.int().describe('The last event that was accepted, or that the webhook did not ask for.'),
  attempts: z.int().describe('How often the next one has failed so far, since when, and why the last time.'),
  failingSinceMs: z.int().nullable(),
  lastError: z.string().nullable(),
  disabledAtMs: z.int().nullable(),
});
export type Webhook = z.infer<typeof WebhookSchema>;

const TypeSchema = z
  .string()
  .regex(/^[a-z_]{1,40}(\.[a-z_]{1,40}|\.\*)$/, 'must be a type such as "sandbox.created" or "sandbox.*"');

export const CreateWebhookSchema = z
  .object({
    url: z
      .url({ protocol: /^https?$/, error: 'must be an http or https address' })
      .max(2048)
      .refine((text) => !/^[a-z]+:\/\/[^/?#]*@/i.test(text), 'must not have a user or password in it'),
    types: z.array(TypeSchema).max(50).default([]),
  })
  .strict();
export type CreateWebhook = z.input<typeof CreateWebhookSchema>;

/** The secret is shown this once. */
export const CreatedWebhookSchema = z.object({ webhook: WebhookSchema, secret: z.string() });
export type CreatedWebhook = z.infer<typeof CreatedWebhookSchema>;
export const WebhookListSchema = z.object({ webhooks: z.array(WebhookSchema) });

/** What became of one request. */
export const DeliverySchema = z.object({
  ok: z.boolean(),
  status: z.int().nullable().describe('Of the answer; null if there was none.'),
  error: z.string().optional(),
  durationMs: z.number(),
});
export type Delivery = z.infer<typeof DeliverySchema>;

/** What a request's body has. */
export const WebhookMessageSchema = z.object({ webhook: z.string(), event: CayEventSchema });
export type WebhookMessage = z.infer<typeof WebhookMessageSchema>;
