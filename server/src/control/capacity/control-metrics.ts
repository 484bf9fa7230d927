import type { Quota } from '@cay/sdk/protocol';
import type { HistogramSnapshot } from '../../lib/histogram.ts';
import type { Records } from '../../records/records.ts';
import { usageOf } from '../tenants/project-verbs.ts';
import type { Projects } from '../tenants/projects.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { WebhookCounts } from '../events/webhooks/webhooks.ts';
import type { NetworkCounts } from '../egress/network-verbs.ts';
import type { Pressure, Reading, Resource } from './pressure.ts';

/** Figures of the control plane, for monitoring. */
export interface ControlMetrics {
  /** Sandboxes of all projects, by state. */
  sandboxes: Record<string, number>;
  /** How full the machine is. A resource that is not measured is absent. */
  pressure: Partial<Record<Resource, Reading>>;
  /** Sandboxes that are kept ready for the next create. Absent if the backend keeps none. */
  pool?: { ready: number; wanted: number };
  /** Time that creates took, in seconds. */
  creates: HistogramSnapshot;
  /** Time until commands ran, in seconds, the wake of a paused sandbox included. */
  commandStarts: HistogramSnapshot;
  /** Use of the quotas that have a limit, by project. */
  quotas: { project: string; quota: keyof Quota; used: number; limit: number }[];
  webhooks: WebhookCounts;
  network: NetworkCounts;
}

export interface ControlMetricsParts {
  records: Records;
  pressure: Pick<Pressure, 'readings' | 'pool'>;
  creates(): HistogramSnapshot;
  commandStarts(): HistogramSnapshot;
  projects: Pick<Projects, 'list'>;
  quota: Pick<QuotaLedger, 'usage' | 'used'>;
  webhooks(): Promise<WebhookCounts>;
  network(): NetworkCounts;
}

/** Bounds the number of time series and the time that one answer takes. */
const MAX_PROJECTS = 100;

export function controlMetrics(parts: ControlMetricsParts): () => Promise<ControlMetrics> {
  const { records, pressure } = parts;
  return async () => {
    const pool = pressure.pool();
    return {
      sandboxes: await records.sandboxes.counts(),
      pressure: pressure.readings(),
      ...(pool && { pool }),
      creates: parts.creates(),
      commandStarts: parts.commandStarts(),
      quotas: await limitedQuotas(parts),
      webhooks: await parts.webhooks(),
      network: parts.network(),
    };
  };
}

async function limitedQuotas({
  records,
  projects,
  quota,
}: ControlMetricsParts): Promise<ControlMetrics['quotas']> {
  const limited = (await projects.list(records)).filter(({ effectiveQuota }) =>
    Object.values(effectiveQuota).some((limit) => limit !== null),
  );
  const quotas: ControlMetrics['quotas'] = [];
  for (const { id, effectiveQuota } of limited.slice(0, MAX_PROJECTS)) {
    const usage = await usageOf(records, id, effectiveQuota, quota);
    for (const [name, { used, limit }] of Object.entries(usage))
      if (limit !== null) quotas.push({ project: id, quota: name as keyof Quota, used, limit });
  }
  return quotas;
}
