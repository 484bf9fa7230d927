/**
 * Sends the events of a project to its webhooks. Each webhook has a cursor in the records that advances when
 * an event was accepted, so a server that dies continues there, and at worst sends an event again. A webhook
 * that fails delays only its own events.
 */
import { createHmac } from 'node:crypto';
import {
  CayError,
  newId,
  type CayEvent,
  type CreateWebhook,
  type Delivery,
  type Webhook,
  type WebhookMessage,
} from '@cay/sdk/protocol';
import type { Principal } from '../../tenants/principal.ts';
import { openClock } from '../../../lib/clock.ts';
import type { QuotaLedger } from '../../tenants/quota-ledger.ts';
import type { EventAppender } from '../../../records/events/events.ts';
import type { Records, Transaction } from '../../../records/records.ts';
import type { Tables } from '../../../records/tables/tables.ts';
import { deliver, requireReachable } from './deliver.ts';
import { startDispatch, type Dispatch, type Pace } from './dispatch.ts';
import { inBackground } from '../../../lib/in-background.ts';

export interface WebhooksOptions {
  records: Records;
  quota: Pick<QuotaLedger, 'counts' | 'requireRoom'>;
  /** The secrets of webhooks are derived from this one, so none is stored. */
  secret: Uint8Array;
  allowPrivate?: boolean;
  /** For tests: the retry delays, and when a webhook is disabled. */
  pace?: Partial<Pace>;
  now?(): number;
  /** The clock for how long a webhook has been failing. Default: one that cannot be set forward meanwhile. */
  ageing?(): number;
  onError?(error: unknown): void;
}

export interface WebhookCounts {
  /** Those whose last delivery succeeded, failed, and those that were given up. */
  healthy: number;
  failing: number;
  disabled: number;
  /** Age of the oldest event that an enabled webhook has not delivered. 0 if there is none. */
  lagSeconds: number;
}

export interface Webhooks {
  /** Rejects for a URL that is not allowed. Resolves the event that a webhook made now begins after. */
  prepare(request: CreateWebhook): Promise<number>;
  /** In a transaction. It delivers events from the commit on. */
  create(
    tx: Transaction,
    principal: Principal,
    request: CreateWebhook,
    after: number,
  ): Promise<{ webhook: Webhook; secret: string }>;
  /** Undefined for a webhook of another project. */
  get(
    on: Tables,
    principal: Principal,
    id: string,
  ): Promise<{ webhook: Webhook; secret: string } | undefined>;
  list(principal: Principal): Promise<Webhook[]>;
  /** Succeeds if the webhook does not exist. */
  remove(principal: Principal, id: string): Promise<void>;
  /** Sends a test event that is in no log. If it is accepted, a disabled webhook is enabled again. */
  test(principal: Principal, id: string): Promise<Delivery>;
  /** Of all projects. */
  counts(): Promise<WebhookCounts>;
  close(): Promise<void>;
}

const PACE: Pace = { timeoutMs: 15_000, firstMs: 1000, longestMs: 300_000, giveUpMs: 24 * 3600 * 1000 };

export async function openWebhooks(options: WebhooksOptions): Promise<Webhooks> {
  const { records, quota, secret, allowPrivate = false, now = Date.now, onError = () => {} } = options;
  const ageing = options.ageing ?? options.now ?? openClock().ageing;
  const pace = { ...PACE, ...options.pace };
  const { events, webhooks } = records;
  quota.counts('webhooks', 'webhooks', (project, on) => on.webhooks.count(project));
  const dispatches = new Map<string, Dispatch>();
  const closing = new AbortController();

  const secretOf = (id: string) => `whsec_${createHmac('sha256', secret).update(id).digest('base64url')}`;

  function begin(webhook: Webhook): void {
    if (webhook.disabledAtMs !== null || closing.signal.aborted || dispatches.has(webhook.id)) return;
    dispatches.set(
      webhook.id,
      startDispatch({
        webhook,
        records: webhooks,
        events,
        pace,
        now,
        ageing,
        onError,
        send: (event, signal) => send(webhook, event, signal),
        disable: (disabled, data) =>
          records.transaction(async (tx) => {
            await tx.webhooks.update(webhook.id, disabled);
            await note(tx, webhook, null, 'webhook.disabled', data);
          }),
      }),
    );
  }

  function send({ id, url }: Webhook, event: CayEvent, signal?: AbortSignal): Promise<Delivery> {
    const message: WebhookMessage = { webhook: id, event };
    const headers = { 'cay-webhook': id, 'cay-event': String(event.id) };
    return deliver(url, headers, JSON.stringify(message), {
      secret: secretOf(id),
      allowPrivate,
      timeoutMs: pace.timeoutMs,
      signal,
      now,
    });
  }

  function note(
    on: { readonly events: EventAppender },
    { id, project, url }: Webhook,
    key: string | null,
    type: string,
    data: Record<string, unknown> = {},
  ): Promise<void> {
    return on.events.append({ type, project, key, data: { webhook: id, host: new URL(url).host, ...data } });
  }

  async function find(on: Tables, principal: Principal, id: string): Promise<Webhook | undefined> {
    const webhook = await on.webhooks.get(id);
    return webhook?.project === principal.project ? webhook : undefined;
  }

  function stop(id: string): void {
    const dispatch = dispatches.get(id);
    dispatches.delete(id);
    if (dispatch) inBackground(dispatch.stop(), onError);
  }

  const unlisten = events.listen(({ project }) => {
    for (const dispatch of dispatches.values()) if (dispatch.project === project) dispatch.wake();
  });
  for (const webhook of await webhooks.list()) begin(webhook);

  return {
    async prepare({ url }) {
      requireReachable(url, allowPrivate);
      return events.lastId();
    },
    async create(tx, principal, { url, types = [] }, after) {
      await quota.requireRoom(tx, principal.project, 'webhooks', 1);
      const webhook: Webhook = {
        id: newId('whk'),
        project: principal.project,
        url,
        types,
        createdAtMs: now(),
        deliveredTo: after,
        attempts: 0,
        failingSinceMs: null,
        lastError: null,
        disabledAtMs: null,
      };
      await tx.webhooks.insert(webhook);
      await note(tx, webhook, principal.key, 'webhook.created');
      tx.afterCommit(() => begin(webhook));
      return { webhook, secret: secretOf(webhook.id) };
    },
    async get(on, principal, id) {
      const webhook = await find(on, principal, id);
      return webhook && { webhook, secret: secretOf(id) };
    },
    list: (principal) => webhooks.list(principal.project),
    remove: (principal, id) =>
      records.transaction(async (tx) => {
        const webhook = await find(tx, principal, id);
        if (!webhook) return;
        await tx.webhooks.delete(id);
        await note(tx, webhook, principal.key, 'webhook.removed');
        tx.afterCommit(() => stop(id));
      }),
    async test(principal, id) {
      const webhook = await find(records, principal, id);
      if (!webhook) throw new CayError('not_found', `Webhook "${id.slice(0, 80)}" does not exist`);
      const event: CayEvent = {
        id: 0,
        atMs: now(),
        type: 'webhook.test',
        project: webhook.project,
        sandbox: null,
        key: principal.key,
        outcome: 'ok',
        data: {},
      };
      const delivery = await send(webhook, event, closing.signal);
      if (!delivery.ok) return delivery;
      await records.transaction(async (tx) => {
        const current = await tx.webhooks.get(id);
        if (!current) return;
        if (current.disabledAtMs === null)
          return tx.afterCommit(() => dispatches.get(id)?.wake({ retry: true }));
        const enabled = { disabledAtMs: null, failingSinceMs: null, lastError: null, attempts: 0 };
        await tx.webhooks.update(id, enabled);
        await note(tx, webhook, principal.key, 'webhook.enabled');
        tx.afterCommit(() => {
          // The one that has given up.
          stop(id);
          begin({ ...current, ...enabled });
        });
      });
      return delivery;
    },
    async counts() {
      const all = await webhooks.list();
      const enabled = all.filter(({ disabledAtMs }) => disabledAtMs === null);
      const failing = enabled.filter(({ failingSinceMs }) => failingSinceMs !== null).length;
      // An event that the webhook does not want is skipped within moments, so it does not count as lag.
      const oldestMs: number[] = [];
      for (const { project, deliveredTo } of enabled) {
        const [next] = await events.list({ after: deliveredTo, project, limit: 1 });
        if (next) oldestMs.push(Math.max(0, now() - next.atMs));
      }
      return {
        healthy: enabled.length - failing,
        failing,
        disabled: all.length - enabled.length,
        lagSeconds: Math.max(0, ...oldestMs) / 1000,
      };
    },
    async close() {
      closing.abort();
      unlisten();
      await Promise.allSettled([...dispatches.values()].map((dispatch) => dispatch.stop()));
    },
  };
}
