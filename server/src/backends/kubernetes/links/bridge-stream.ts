import type { Duplex } from 'node:stream';
import { execStream } from '../client/exec-stream.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { CONTAINER, GUEST_PATH, SOCKET_PATH } from '../workloads/pod-spec.ts';

export interface BridgeStreamOptions {
  namespace: string;
  /** Its name. */
  pod: string;
  /** Completes "Cannot …". */
  action: string;
  signal?: AbortSignal;
  /** Connects to the guest only when the first byte is written. That byte is not sent to the guest. */
  later?: boolean;
}

/** A byte stream to the guest of a pod, over an exec of the bridge. */
export function bridgeStream(
  client: KubernetesClient,
  { later = false, ...options }: BridgeStreamOptions,
): Promise<Duplex> {
  const argv = [GUEST_PATH, 'bridge', SOCKET_PATH, ...(later ? ['later'] : [])];
  return execStream(client, { ...options, container: CONTAINER, argv });
}
