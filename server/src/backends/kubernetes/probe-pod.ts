/**
 * The pod that tries the network: the guest's image alone, with the rights and on the runtime of a sandbox.
 */
import { USER } from '../support/sandbox-user.ts';
import { DISK_REQUEST, EPHEMERAL_STORAGE } from './workloads/disk.ts';
import { CONTAINER, GUEST_IN_IMAGE } from './workloads/pod-spec.ts';
import type { Runtime } from './runtimes.ts';
import { DEFAULT_RUNTIME, type KubernetesSettings } from './settings.ts';

export const PROBE_PORT = 7072;

export function probePod(
  { guestImage, pullSecrets, pullPolicy }: KubernetesSettings & { pullPolicy: string },
  runtime: Runtime,
): object {
  return {
    ...(runtime.name !== DEFAULT_RUNTIME && { runtimeClassName: runtime.name }),
    restartPolicy: 'Never',
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    terminationGracePeriodSeconds: 0,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: USER.uid,
      runAsGroup: USER.gid,
      seccompProfile: { type: 'RuntimeDefault' },
    },
    ...(pullSecrets && { imagePullSecrets: pullSecrets.map((name) => ({ name })) }),
    containers: [
      {
        name: CONTAINER,
        image: guestImage,
        imagePullPolicy: pullPolicy,
        command: [GUEST_IN_IMAGE, 'listen', String(PROBE_PORT)],
        securityContext: {
          allowPrivilegeEscalation: false,
          privileged: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        },
        resources: {
          limits: { cpu: '500m', memory: '256Mi', [EPHEMERAL_STORAGE]: DISK_REQUEST },
          requests: { cpu: '10m', memory: '16Mi', [EPHEMERAL_STORAGE]: '16Mi' },
        },
      },
    ],
  };
}
