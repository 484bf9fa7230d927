import { MERGE_PATCH, type KubernetesClient } from '../client/kubernetes-client.ts';
import type { KubernetesObject } from '../client/objects.ts';
import type { StatusPatch } from '../workloads/workload-status.ts';

export async function patchObject(
  client: KubernetesClient,
  path: string,
  body: object,
  options: { action: string; allow?: number[]; signal?: AbortSignal | undefined },
): Promise<KubernetesObject | undefined> {
  return (await client.json('PATCH', path, { body, type: MERGE_PATCH, ...options })) as
    | KubernetesObject
    | undefined;
}

/** The body of a patch: metadata, with the labels and annotations of a status. */
export function merged(
  { metadata }: { metadata: Partial<KubernetesObject['metadata']> },
  status: StatusPatch,
): { metadata: object } {
  const { labels, annotations } = status.metadata;
  return {
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...labels },
      annotations: { ...metadata.annotations, ...annotations },
    },
  };
}
