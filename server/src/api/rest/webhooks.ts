import {
  CreateWebhookSchema,
  CreatedWebhookSchema,
  DeliverySchema,
  WebhookListSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';

const tag = 'webhooks';
const WebhookParams = z.object({ webhook: z.string().min(1).max(80) });

export function webhookRoutes({ webhooks }: Pick<Control, 'webhooks'>): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/webhooks',
      name: 'createWebhook',
      summary: "Have the project's events sent to an address",
      description:
        'Every event from now on that has one of the `types`, in a request of its own, in order and at least once: `{"webhook", "event"}`. ' +
        'Anything but a 2xx is tried again, later and later, for a day. ' +
        '`Cay-Signature: t=<seconds>,v1=<hex>` is the HMAC-SHA256, by the secret, of the seconds, a dot and the body.',
      tag,
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      body: CreateWebhookSchema,
      answers: {
        200: { description: 'It was created by an earlier call', schema: CreatedWebhookSchema },
        201: { description: 'The webhook, and its secret this once', schema: CreatedWebhookSchema },
      },
      async handle({ json, request, principal, body }) {
        const { value, repeated } = await webhooks.create(principal, body, {
          idempotencyKey: idempotencyKeyOf(request.headers),
        });
        return json(value, repeated ? 200 : 201);
      },
    }),
    route({
      method: 'get',
      path: '/v1/webhooks',
      name: 'listWebhooks',
      summary: "List the project's webhooks and their progress",
      tag,
      answers: {
        200: { description: 'Webhooks, oldest first, without their secrets', schema: WebhookListSchema },
      },
      handle: async ({ json, principal }) => json({ webhooks: await webhooks.list(principal) }),
    }),
    route({
      method: 'delete',
      path: '/v1/webhooks/{webhook}',
      name: 'removeWebhook',
      summary: 'Remove a webhook',
      tag,
      params: WebhookParams,
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, params }) => empty(await webhooks.remove(principal, params.webhook)),
    }),
    route({
      method: 'post',
      path: '/v1/webhooks/{webhook}/test',
      name: 'testWebhook',
      summary: 'Send an event of type `webhook.test`, and answer the outcome',
      description: 'If the delivery succeeds, a disabled webhook is enabled, and continues where it stopped.',
      tag,
      params: WebhookParams,
      answers: { 200: { description: 'The outcome of the delivery', schema: DeliverySchema } },
      handle: async ({ json, principal, params }) => json(await webhooks.test(principal, params.webhook)),
    }),
  ];
}
