import { isCayError, type CreateWebhook, type CreatedWebhook } from '@cay/sdk/protocol';
import type { Idempotency } from '../../tenants/idempotency.ts';
import type { Principal } from '../../tenants/principal.ts';
import type { Webhooks } from './webhooks.ts';

export interface WebhookVerbs extends Pick<Webhooks, 'list' | 'remove' | 'test'> {
  create(
    principal: Principal,
    request: CreateWebhook,
    options?: { idempotencyKey?: string | undefined },
  ): { value: CreatedWebhook; repeated: boolean };
}

export function webhookVerbs(webhooks: Webhooks, idempotency: Idempotency): WebhookVerbs {
  return {
    list: webhooks.list,
    remove: webhooks.remove,
    test: webhooks.test,
    create: (principal, request, { idempotencyKey } = {}) =>
      idempotency.once<CreatedWebhook>(
        { project: principal.project, key: idempotencyKey, request: { createWebhook: request } },
        {
          make() {
            const created = webhooks.create(principal, request);
            return { id: created.webhook.id, value: created };
          },
          again(id) {
            try {
              return webhooks.get(principal, id);
            } catch (error) {
              if (isCayError(error, 'not_found')) return undefined;
              throw error;
            }
          },
        },
      ),
  };
}
