import type { CayEvent, Delivery, Webhook } from '@cay/sdk/protocol';
import type { EventRecords } from '../../../records/events/events.ts';
import type { WebhookProgress, WebhookRecords } from '../../../records/tables/webhooks.ts';

/**
 * The timeout of a request, the first and the longest delay of a retry, and how long a webhook may fail
 * before it is disabled.
 */
export interface Pace {
  timeoutMs: number;
  firstMs: number;
  longestMs: number;
  giveUpMs: number;
}

export interface DispatchOptions {
  webhook: Webhook;
  records: Pick<WebhookRecords, 'update'>;
  events: Pick<EventRecords, 'list'>;
  pace: Pace;
  send(event: CayEvent, signal: AbortSignal): Promise<Delivery>;
  /** Records that the webhook is disabled, with the event of it. */
  disable(disabled: { disabledAtMs: number }, data: Record<string, unknown>): Promise<void>;
  now(): number;
  ageing(): number;
  onError(error: unknown): void;
}

/** The delivery of the events of one webhook. */
export interface Dispatch {
  readonly project: string;
  /** There may be more events to send. With `retry` a failed one is sent again now. */
  wake(options?: { retry?: boolean }): void;
  stop(): Promise<void>;
}

const PAGE = 200;
/** The receiver wants no more events. */
const GONE = 410;

export function startDispatch({
  webhook,
  records,
  events,
  pace,
  send,
  disable,
  now,
  ageing,
  onError,
}: DispatchOptions): Dispatch {
  const { id, project } = webhook;
  const stopping = new AbortController();
  const state = { ...webhook };
  let rung = false;
  let ring: (() => void) | undefined;
  let retry: (() => void) | undefined;
  /** Whether a retry was asked for since the last attempt began. */
  let retryNow = false;

  /**
   * Records the cursor, best effort: on a full disk it is kept in memory, and at worst an event is sent again
   * after a restart.
   */
  async function save(
    progress: WebhookProgress,
    write: () => Promise<void> = () => records.update(id, progress),
  ): Promise<void> {
    Object.assign(state, progress);
    try {
      await write();
    } catch (error) {
      onError(error);
    }
  }

  const wants = ({ type }: CayEvent) =>
    webhook.types.length === 0 ||
    webhook.types.some(
      (wanted) => wanted === type || (wanted.endsWith('.*') && type.startsWith(wanted.slice(0, -1))),
    );

  async function run(): Promise<void> {
    while (!stopping.signal.aborted && state.disabledAtMs === null) {
      const page = await events.list({ after: state.deliveredTo, project, limit: PAGE });
      for (const event of page) {
        if (wants(event) && !(await deliverOne(event))) return;
        state.deliveredTo = event.id;
      }
      if (page.length === PAGE) continue;
      if (page.length > 0 && !wants(page.at(-1)!)) await save({ deliveredTo: state.deliveredTo });
      await rings();
    }
  }

  /** Retries until the event is accepted. False if the webhook is disabled or the dispatch is stopped. */
  async function deliverOne(event: CayEvent): Promise<boolean> {
    for (;;) {
      retryNow = false;
      const delivery = await send(event, stopping.signal);
      if (delivery.ok) {
        await save({
          deliveredTo: event.id,
          ...(state.failingSinceMs !== null && { attempts: 0, failingSinceMs: null, lastError: null }),
        });
        return true;
      }
      if (stopping.signal.aborted) return false;
      // A clock that was set back must not put the first failure into the future.
      const failingSinceMs = Math.min(state.failingSinceMs ?? now(), now());
      await save({ attempts: state.attempts + 1, failingSinceMs, lastError: delivery.error ?? null });
      if (ageing() - failingSinceMs >= pace.giveUpMs || delivery.status === GONE) {
        const disabled = { disabledAtMs: now() };
        const data = { attempts: state.attempts, error: delivery.error, undelivered: event.id };
        await save(disabled, () => disable(disabled, data));
        return false;
      }
      await backOff();
      if (stopping.signal.aborted) return false;
    }
  }

  /** Exponential backoff with jitter. */
  async function backOff(): Promise<void> {
    // Asked for while the failure was recorded.
    if (retryNow || stopping.signal.aborted) return;
    const most = Math.min(pace.longestMs, pace.firstMs * 2 ** Math.min(state.attempts - 1, 30));
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      retry = resolve;
      timer = setTimeout(resolve, most / 2 + Math.random() * (most / 2)).unref();
    });
    clearTimeout(timer);
  }

  async function rings(): Promise<void> {
    if (!rung && !stopping.signal.aborted) await new Promise<void>((resolve) => (ring = resolve));
    rung = false;
  }

  const running = run().catch(onError);
  return {
    project,
    wake({ retry: now = false } = {}) {
      rung = true;
      ring?.();
      if (!now) return;
      retryNow = true;
      retry?.();
    },
    async stop() {
      stopping.abort();
      ring?.();
      retry?.();
      await running;
    },
  };
}
