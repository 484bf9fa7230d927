import type { ProbeObject, ProbeOptions } from '../tenancy/network-probe.ts';

/** The Job of a pod with which the network is tried. */
export function renderJobProbe(
  { name, labels, pod, seconds }: Parameters<ProbeOptions['render']>[0],
  { namespace }: { namespace: string },
): ProbeObject {
  return {
    path: `/apis/batch/v1/namespaces/${namespace}/jobs`,
    body: {
      apiVersion: 'batch/v1',
      kind: 'Job',
      metadata: { name, namespace, labels },
      spec: {
        backoffLimit: 0,
        activeDeadlineSeconds: seconds,
        ttlSecondsAfterFinished: 0,
        template: { metadata: { labels }, spec: pod },
      },
    },
  };
}
