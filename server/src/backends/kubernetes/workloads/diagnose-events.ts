/** What the cluster's events say about an object that does not start, where its status says nothing. */
import { CayError, isCayError } from '@cay/sdk/protocol';
import { refusalOf } from '../client/from-kubernetes.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import type { KubernetesObject, List } from '../client/objects.ts';

interface Event extends KubernetesObject {
  type?: string;
  reason?: string;
  message?: string;
}

export interface TroubleOptions {
  namespace: string;
  uid: string;
  /** Completes "Cannot …". */
  action: string;
  signal?: AbortSignal;
}

/** The error for the caller that waits, or `undefined` if no event explains the delay. */
export async function diagnose(
  client: KubernetesClient,
  { namespace, uid, action, signal }: TroubleOptions,
): Promise<CayError | undefined> {
  let events: Event[];
  try {
    const query = { fieldSelector: `involvedObject.uid=${uid},type=Warning`, limit: 50 };
    ({ items: events } = (await client.json('GET', `/api/v1/namespaces/${namespace}/events`, {
      action: 'look at events',
      query,
      signal,
    })) as List<Event>);
  } catch (error) {
    // A server that may not list events waits until the timeout, and reports less.
    if (isCayError(error, 'permission_denied')) return undefined;
    throw error;
  }
  for (const { reason, message = '' } of events.toReversed()) {
    if (reason === 'FailedCreate') {
      const known = refusalOf(message);
      return new CayError(
        known?.code ?? 'failed_precondition',
        `Cannot ${action}: the cluster refuses its pod: ${message}`,
        {
          details: known?.details ?? { reason: 'admission_refused' },
          hint: known?.hint,
        },
      );
    }
    if (
      reason === 'FailedCreatePodSandBox' &&
      /no runtime for|runtime handler|failed to resolve runtime path/i.test(message)
    ) {
      return new CayError(
        'not_found',
        `Cannot ${action}: the node does not know the RuntimeClass: ${message}`,
        {
          details: { reason: 'runtime_class_unusable' },
          hint: 'configure its handler in containerd of the node, or choose another runtime',
        },
      );
    }
  }
  return undefined;
}
