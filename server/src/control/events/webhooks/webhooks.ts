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
import type { Database } from '../../../records/database.ts';
import type { EventLog } from '../event-log.ts';
import { deliver, requireReachable } from './deliver.ts';
import { startDispatch, type Dispatch, type Pace } from './dispatch.ts';
import { webhookRecords } from './webhook-records.ts';
import { inBackground } from '../../../lib/in-background.ts';

export interface WebhooksOptions {
  database: Database;
  events: EventLog;
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
  create(principal: Principal, request: CreateWebhook): { webhook: Webhook; secret: string };
  /** Rejects `not_found` for a webhook of another project. */
  get(principal: Principal, id: string): { webhook: Webhook; secret: string };
  list(principal: Principal): Webhook[];
  /** Succeeds if the webhook does not exist. */
  remove(principal: Principal, id: string): void;
  /** Sends a test event that is in no log. If it is accepted, a disabled webhook is enabled again. */
  test(principal: Principal, id: string): Promise<Delivery>;
  /** Of all projects. */
  counts(): WebhookCounts;
  close(): Promise<void>;
}

const PACE: Pace = { timeoutMs: 15_000, firstMs: 1000, longestMs: 300_000, giveUpMs: 24 * 3600 * 1000 };

export function openWebhooks(options: WebhooksOptions): Webhooks {
  const {
    database,
    events,
    quota,
    secret,
    allowPrivate = false,
    now = Date.now,
    onError = () => {},
  } = options;
  const ageing = options.ageing ?? options.now ?? openClock().ageing;
  const pace = { ...PACE, ...options.pace };
  const records = webhookRecords(database);
  quota.counts('webhooks', 'webhooks', (project) => records.list(project).length);
  const dispatches = new Map<string, Dispatch>();
  const closing = new AbortController();

  const secretOf = (id: string) => `whsec_${createHmac('sha256', secret).update(id).digest('base64url')}`;

  function begin(webhook: Webhook): void {
    if (webhook.disabledAtMs !== null || closing.signal.aborted) return;
    dispatches.set(
      webhook.id,
      startDispatch({
        webhook,
        records,
        events,
        pace,
        now,
        ageing,
        onError,
        send: (event, signal) => send(webhook, event, signal),
        note: (type, data) => note(webhook, null, type, data),
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
    { id, project, url }: Webhook,
    key: string | null,
    type: string,
    data: Record<string, unknown> = {},
  ): void {
    events.append({ type, project, key, data: { webhook: id, host: new URL(url).host, ...data } });
  }

  function find(principal: Principal, id: string): Webhook {
    const webhook = records.get(id);
    if (webhook?.project === principal.project) return webhook;
    throw new CayError('not_found', `Webhook "${id.slice(0, 80)}" does not exist`);
  }

  const unlisten = events.listen(({ project }) => {
    for (const dispatch of dispatches.values()) if (dispatch.project === project) dispatch.wake();
  });
  for (const webhook of records.list()) begin(webhook);

  return {
    create(principal, { url, types = [] }) {
      requireReachable(url, allowPrivate);
      quota.requireRoom(principal.project, 'webhooks', 1);
      const webhook: Webhook = {
        id: newId('whk'),
        project: principal.project,
        url,
        types,
        createdAtMs: now(),
        deliveredTo: events.lastId(),
        attempts: 0,
        failingSinceMs: null,
        lastError: null,
        disabledAtMs: null,
      };
      records.insert(webhook);
      note(webhook, principal.key, 'webhook.created');
      begin(webhook);
      return { webhook, secret: secretOf(webhook.id) };
    },
    get(principal, id) {
      return { webhook: find(principal, id), secret: secretOf(id) };
    },
    list: (principal) => records.list(principal.project),
    remove(principal, id) {
      const webhook = records.get(id);
      if (webhook?.project !== principal.project) return;
      records.delete(id);
      const dispatch = dispatches.get(id);
      if (dispatch) inBackground(dispatch.stop(), onError);
      dispatches.delete(id);
      note(webhook, principal.key, 'webhook.removed');
    },
    async test(principal, id) {
      const webhook = find(principal, id);
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
      const current = records.get(id);
      if (!delivery.ok || !current) return delivery;
      if (current.disabledAtMs === null) dispatches.get(id)?.wake({ retry: true });
      else {
        const enabled = { disabledAtMs: null, failingSinceMs: null, lastError: null, attempts: 0 };
        records.update(id, enabled);
        note(webhook, principal.key, 'webhook.enabled');
        begin({ ...current, ...enabled });
      }
      return delivery;
    },
    counts() {
      const all = records.list();
      const enabled = all.filter(({ disabledAtMs }) => disabledAtMs === null);
      const failing = enabled.filter(({ failingSinceMs }) => failingSinceMs !== null).length;
      // An event that the webhook does not want is skipped within moments, so it does not count as lag.
      const oldestMs = enabled.map(({ project, deliveredTo }) => {
        const [next] = events.list({ after: deliveredTo, project, limit: 1 });
        return next ? Math.max(0, now() - next.atMs) : 0;
      });
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
