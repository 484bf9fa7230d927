/** What is read of the cluster's objects. All of it comes as JSON, so moments are texts. */

export interface Metadata {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: { apiVersion?: string; kind: string; name: string; uid: string }[];
}

export interface KubernetesObject {
  metadata: Metadata;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
}

export interface ContainerState {
  waiting?: { reason?: string; message?: string };
  running?: { startedAt?: string };
  terminated?: { reason?: string; message?: string; exitCode: number; signal?: number };
}

export interface ContainerStatus {
  name: string;
  ready: boolean;
  restartCount: number;
  state?: ContainerState;
  lastState?: ContainerState;
}

export interface Pod extends KubernetesObject {
  spec?: {
    nodeName?: string;
    runtimeClassName?: string;
    containers?: { name: string; volumeMounts?: { name: string; mountPath: string }[] }[];
  };
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    podIP?: string;
    conditions?: Condition[];
    initContainerStatuses?: ContainerStatus[];
    containerStatuses?: ContainerStatus[];
  };
}

export interface Job extends KubernetesObject {
  spec?: { activeDeadlineSeconds?: number };
  status?: {
    startTime?: string;
    active?: number;
    ready?: number;
    succeeded?: number;
    failed?: number;
    conditions?: Condition[];
  };
}

export interface List<T> {
  metadata: { resourceVersion: string };
  items: T[];
}

export interface RuntimeClass extends KubernetesObject {
  handler: string;
}
