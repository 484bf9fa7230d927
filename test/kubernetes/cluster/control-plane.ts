/** The programs of a control plane and how they are called. */
import type { Parts } from './parts.ts';
import { NODE_IP } from './certificates.ts';

export interface Daemon {
  name: string;
  argv: string[];
  env?: Record<string, string>;
}

export interface Ports {
  etcd: number;
  etcdPeer: number;
  api: number;
  controllers: number;
  scheduler: number;
}

/** What a cluster with a network of its own uses. */
export const OWN_PORTS: Ports = {
  etcd: 12379,
  etcdPeer: 12380,
  api: 16443,
  controllers: 20257,
  scheduler: 20259,
};

export interface ControlPlaneOptions {
  parts: Parts;
  directory: string;
  ports: Ports;
  /** Whether there is a kubelet that the API server calls. */
  nodes: boolean;
  /** After how long without a word a node counts as lost. */
  lossSeconds?: number;
}

export function controlPlane({ parts, directory, ports, nodes, lossSeconds }: ControlPlaneOptions): Daemon[] {
  const pki = `${directory}/pki`;
  const kubernetes = parts.directory('kubernetes');
  const peer = `http://127.0.0.1:${ports.etcdPeer}`;
  const client = `http://127.0.0.1:${ports.etcd}`;
  const admin = `${pki}/admin.kubeconfig`;
  const etcd: Daemon = {
    name: 'etcd',
    argv: [
      `${parts.directory('debian')}/usr/bin/etcd`,
      ...['--name', 'test', '--data-dir', `${directory}/etcd`],
      ...['--listen-client-urls', client, '--advertise-client-urls', client],
      ...[
        '--listen-peer-urls',
        peer,
        '--initial-advertise-peer-urls',
        peer,
        '--initial-cluster',
        `test=${peer}`,
      ],
      '--unsafe-no-fsync',
    ],
  };
  const apiserver: Daemon = {
    name: 'kube-apiserver',
    argv: [
      `${kubernetes}/kube-apiserver`,
      `--etcd-servers=${client}`,
      '--bind-address=127.0.0.1',
      `--secure-port=${ports.api}`,
      `--advertise-address=${NODE_IP}`,
      `--tls-cert-file=${pki}/apiserver.crt`,
      `--tls-private-key-file=${pki}/apiserver.key`,
      `--client-ca-file=${pki}/ca.crt`,
      ...(nodes
        ? [
            `--kubelet-client-certificate=${pki}/apiserver-kubelet.crt`,
            `--kubelet-client-key=${pki}/apiserver-kubelet.key`,
            `--kubelet-certificate-authority=${pki}/ca.crt`,
            '--kubelet-preferred-address-types=InternalIP,Hostname',
          ]
        : []),
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${pki}/sa.pub`,
      `--service-account-signing-key-file=${pki}/sa.key`,
      '--service-cluster-ip-range=10.96.0.0/16',
      '--authorization-mode=Node,RBAC',
      '--allow-privileged=true',
      '--endpoint-reconciler-type=none',
      '--profiling=false',
      // Webhooks reach the endpoints of a Service directly, so that no kube-proxy is needed for them.
      '--enable-aggregator-routing=true',
    ],
  };
  const controllers: Daemon = {
    name: 'kube-controller-manager',
    argv: [
      `${kubernetes}/kube-controller-manager`,
      // As admin and not under its own name, which may do nearly nothing without an account for each
      // controller.
      `--kubeconfig=${admin}`,
      '--kube-api-qps=500',
      '--kube-api-burst=1000',
      '--leader-elect=false',
      '--bind-address=127.0.0.1',
      `--secure-port=${ports.controllers}`,
      `--root-ca-file=${pki}/ca.crt`,
      `--service-account-private-key-file=${pki}/sa.key`,
      '--use-service-account-credentials=false',
      `--cluster-signing-cert-file=${pki}/ca.crt`,
      `--cluster-signing-key-file=${pki}/ca.key`,
      '--allocate-node-cidrs=false',
      ...(lossSeconds === undefined
        ? []
        : ['--node-monitor-period=1s', `--node-monitor-grace-period=${lossSeconds}s`]),
    ],
  };
  if (!nodes) return [etcd, apiserver, controllers];
  const scheduler: Daemon = {
    name: 'kube-scheduler',
    argv: [
      `${kubernetes}/kube-scheduler`,
      ...['kubeconfig', 'authentication-kubeconfig', 'authorization-kubeconfig'].map(
        (flag) => `--${flag}=${pki}/scheduler.kubeconfig`,
      ),
      '--kube-api-qps=500',
      '--kube-api-burst=1000',
      '--leader-elect=false',
      '--bind-address=127.0.0.1',
      `--secure-port=${ports.scheduler}`,
    ],
  };
  return [etcd, apiserver, controllers, scheduler];
}
