/** The status of a sandbox, as it is written on its workload. */
import { ANNOTATIONS, LABELS } from '../client/names.ts';
import type { KubernetesObject } from '../client/objects.ts';

export type Mark = 'starting' | 'ready' | 'stopped';

/** What changes about a sandbox while the cluster keeps it. */
export interface WorkloadStatus {
  incarnation: number;
  mark: Mark;
  /** Of the pod that it runs in; absent until it has run. */
  pod?: string;
  restarts: number;
  /** It is ready, and its processes are stopped. */
  frozen?: boolean;
  /** It is stopped because it was suspended. */
  suspended?: boolean;
}

const MARKS: readonly string[] = ['starting', 'ready', 'stopped'] satisfies Mark[];

/** Reads the status. If the annotations were edited or removed, the workload is treated as new. */
export function statusOf({ metadata }: KubernetesObject): WorkloadStatus {
  const annotations = metadata.annotations ?? {};
  const mark = annotations[ANNOTATIONS.mark] ?? '';
  return {
    incarnation: Math.max(1, Math.trunc(Number(metadata.labels?.[LABELS.incarnation])) || 1),
    mark: MARKS.includes(mark) ? (mark as Mark) : 'starting',
    pod: annotations[ANNOTATIONS.pod],
    restarts: Number(annotations[ANNOTATIONS.restarts]) || 0,
    ...(annotations[ANNOTATIONS.frozen] === 'true' && { frozen: true }),
    ...(annotations[ANNOTATIONS.suspended] === 'true' && { suspended: true }),
  };
}

/** As a merge patch. */
export interface StatusPatch {
  metadata: { labels: Record<string, string | null>; annotations: Record<string, string | null> };
}

export function statusPatch({
  incarnation,
  mark,
  pod,
  restarts,
  frozen,
  suspended,
}: WorkloadStatus): StatusPatch {
  return {
    metadata: {
      labels: { [LABELS.incarnation]: String(incarnation) },
      annotations: {
        [ANNOTATIONS.mark]: mark,
        [ANNOTATIONS.pod]: pod ?? null,
        [ANNOTATIONS.restarts]: String(restarts),
        [ANNOTATIONS.frozen]: frozen ? 'true' : null,
        [ANNOTATIONS.suspended]: suspended ? 'true' : null,
      },
    },
  };
}
