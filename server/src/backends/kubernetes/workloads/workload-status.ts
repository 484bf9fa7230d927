/** How a sandbox stands, as it is written on the object that keeps its pod. */
import { ANNOTATIONS, LABELS } from '../client/names.ts';
import type { KubernetesObject } from '../client/objects.ts';

export type Mark = 'starting' | 'ready' | 'stopped';

/** What changes about a sandbox while the cluster keeps it. */
export interface Standing {
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

/** What stands in the object. Somebody who changes it takes from us what it told; it is then taken as new. */
export function standingOf({ metadata }: KubernetesObject): Standing {
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
export interface StandingPatch {
  metadata: { labels: Record<string, string>; annotations: Record<string, string | null> };
}

export function standingPatch({
  incarnation,
  mark,
  pod,
  restarts,
  frozen,
  suspended,
}: Standing): StandingPatch {
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
