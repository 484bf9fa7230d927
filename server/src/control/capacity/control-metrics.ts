import type { Quota } from '@cay/sdk/protocol';
import type { HistogramSnapshot } from '../../lib/histogram.ts';
import type { ProjectRecords } from '../../records/projects.ts';
import { usageOf } from '../tenants/project-verbs.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';
import type { WebhookCounts } from '../events/webhooks/webhooks.ts';
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
}

export interface ControlMetricsParts {
  counts(): Record<string, number>;
  pressure: Pick<Pressure, 'readings' | 'pool'>;
  creates(): HistogramSnapshot;
  commandStarts(): HistogramSnapshot;
  projects: Pick<ProjectRecords, 'list'>;
  quota: Pick<QuotaLedger, 'usage' | 'used'>;
  webhooks(): WebhookCounts;
}

/** Bounds the number of time series and the time that one answer takes. */
const MAX_PROJECTS = 100;

export function controlMetrics(parts: ControlMetricsParts): () => ControlMetrics {
  const { projects, quota, pressure } = parts;
  return () => {
    const pool = pressure.pool();
    return {
      sandboxes: parts.counts(),
      pressure: pressure.readings(),
      ...(pool && { pool }),
      creates: parts.creates(),
      commandStarts: parts.commandStarts(),
      quotas: limitedQuotas(projects, quota),
      webhooks: parts.webhooks(),
    };
  };
}

function limitedQuotas(
  projects: ControlMetricsParts['projects'],
  quota: ControlMetricsParts['quota'],
): ControlMetrics['quotas'] {
  const limited = projects
    .list()
    .filter(({ effectiveQuota }) => Object.values(effectiveQuota).some((limit) => limit !== null));
  return limited
    .slice(0, MAX_PROJECTS)
    .flatMap(({ id, effectiveQuota }) =>
      Object.entries(usageOf(id, effectiveQuota, quota)).flatMap(([name, { used, limit }]) =>
        limit === null ? [] : [{ project: id, quota: name as keyof Quota, used, limit }],
      ),
    );
}
