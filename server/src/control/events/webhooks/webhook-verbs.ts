import type { CreateWebhook, CreatedWebhook } from '@cay/sdk/protocol';
import type { Idempotency } from '../../tenants/idempotency.ts';
import type { Principal } from '../../tenants/principal.ts';
import type { Webhooks } from './webhooks.ts';

export interface WebhookVerbs extends Pick<Webhooks, 'list' | 'remove' | 'test'> {
  create(
    principal: Principal,
    request: CreateWebhook,
    options?: { idempotencyKey?: string | undefined },
  ): Promise<{ value: CreatedWebhook; repeated: boolean }>;
}

export function webhookVerbs(webhooks: Webhooks, idempotency: Idempotency): WebhookVerbs {
  return {
    list: webhooks.list,
    remove: webhooks.remove,
    test: webhooks.test,
    async create(principal, request, { idempotencyKey } = {}) {
      const after = await webhooks.prepare(request);
      return idempotency.once<CreatedWebhook>(
        { project: principal.project, key: idempotencyKey, request: { createWebhook: request } },
        {
          async make(tx) {
            const created = await webhooks.create(tx, principal, request, after);
            return { id: created.webhook.id, value: created };
          },
          again: (tx, id) => webhooks.get(tx, principal, id),
        },
      );
    },
  };
}
