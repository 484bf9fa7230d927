/**
 * A node: containerd with runc and, where it can be had, gVisor, and a kubelet. Writes their configuration,
 * tells how they are called.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { NODE_IP, NODE_NAME } from './certificates.ts';
import type { Daemon } from './control-plane.ts';
import type { Parts } from './parts.ts';

export const PAUSE_IMAGE = 'cay.test/pause:1';
export const NODE_BRIDGE = 'k8snode0';

export interface NodeOptions {
  parts: Parts;
  directory: string;
  /** A cgroup of the node's own, in every hierarchy. */
  cgroup: string;
  /** After how long without a word the node counts as lost. */
  lossSeconds?: number;
  /** How often the kubelet looks at how much pods have written. */
  diskSeconds?: number;
}

export async function makeNode({
  parts,
  directory,
  cgroup,
  lossSeconds,
  diskSeconds,
}: NodeOptions): Promise<Daemon[]> {
  const debian = parts.directory('debian');
  const containerd = `${parts.directory('containerd')}/usr/bin`;
  const gvisor = parts.whyNot('gvisor') === undefined ? parts.directory('gvisor') : undefined;
  await mkdir(`${directory}/cni`, { recursive: true });
  await Promise.all([
    writeFile(
      `${directory}/kubelet.json`,
      JSON.stringify(kubeletConfig(directory, { cgroup, lossSeconds, diskSeconds }), null, 1),
    ),
    writeFile(
      `${directory}/containerd.toml`,
      containerdConfig(directory, { debian, gvisor: gvisor !== undefined }),
    ),
    writeFile(`${directory}/cni/10-bridge.conflist`, JSON.stringify(cniConfig(directory))),
    ...(gvisor ? [writeFile(`${directory}/runsc.toml`, runscConfig(gvisor))] : []),
  ]);
  const path = [
    ...(gvisor ? [gvisor] : []),
    containerd,
    `${debian}/usr/sbin`,
    '/usr/sbin',
    '/usr/bin',
    '/sbin',
    '/bin',
  ].join(':');
  return [
    {
      name: 'containerd',
      argv: [`${containerd}/containerd`, '-c', `${directory}/containerd.toml`],
      env: { PATH: path },
    },
    {
      name: 'kubelet',
      argv: [
        `${parts.directory('kubernetes')}/kubelet`,
        `--config=${directory}/kubelet.json`,
        `--kubeconfig=${directory}/pki/kubelet.kubeconfig`,
        `--hostname-override=${NODE_NAME}`,
        `--node-ip=${NODE_IP}`,
        `--root-dir=${directory}/kubelet`,
        `--cert-dir=${directory}/kubelet/pki`,
      ],
    },
  ];
}

function kubeletConfig(
  directory: string,
  { cgroup, lossSeconds = 40, diskSeconds = 60 }: Pick<NodeOptions, 'cgroup' | 'lossSeconds' | 'diskSeconds'>,
): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    address: NODE_IP,
    port: 20250,
    healthzPort: 20248,
    readOnlyPort: 0,
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: `${directory}/pki/ca.crt` },
    },
    authorization: { mode: 'Webhook' },
    tlsCertFile: `${directory}/pki/kubelet-server.crt`,
    tlsPrivateKeyFile: `${directory}/pki/kubelet-server.key`,
    containerRuntimeEndpoint: `unix://${directory}/containerd.sock`,
    cgroupDriver: 'cgroupfs',
    cgroupRoot: cgroup,
    failCgroupV1: false,
    failSwapOn: false,
    cgroupsPerQOS: true,
    enforceNodeAllocatable: ['pods'],
    resolvConf: `${directory}/resolv.conf`,
    evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '1%', 'imagefs.available': '1%' },
    imageGCHighThresholdPercent: 100,
    imageGCLowThresholdPercent: 99,
    makeIPTablesUtilChains: false,
    serializeImagePulls: false,
    maxPods: 200,
    // It gives a sign of life four times in that time.
    nodeLeaseDurationSeconds: lossSeconds,
    volumeStatsAggPeriod: `${diskSeconds}s`,
    podLogsDir: '/var/log/pods',
  };
}

/** In the second version of the format, which later releases read as well. */
function containerdConfig(
  directory: string,
  { debian, gvisor }: { debian: string; gvisor: boolean },
): string {
  const cri = (name = '') => `[plugins."io.containerd.grpc.v1.cri"${name && `.${name}`}]`;
  const left = [
    'internal.v1.opt',
    'snapshotter.v1.btrfs',
    'snapshotter.v1.zfs',
    'snapshotter.v1.devmapper',
    'snapshotter.v1.blockfile',
    'nri.v1.nri',
  ];
  const lines = [
    'version = 2',
    `root = "${directory}/containerd"`,
    `state = "${directory}/run/containerd"`,
    `disabled_plugins = [${left.map((name) => `"io.containerd.${name}"`).join()}]`,
    '[grpc]',
    `address = "${directory}/containerd.sock"`,
    '[ttrpc]',
    `address = "${directory}/containerd.sock.ttrpc"`,
    cri(),
    `sandbox_image = "${PAUSE_IMAGE}"`,
    '# Root may lack the right to lower the score.',
    'restrict_oom_score_adj = true',
    'enable_unprivileged_ports = true',
    cri('cni'),
    `bin_dir = "${debian}/usr/lib/cni"`,
    `conf_dir = "${directory}/cni"`,
    cri('containerd'),
    'snapshotter = "overlayfs"',
    'default_runtime_name = "runc"',
    cri('containerd.runtimes.runc'),
    'runtime_type = "io.containerd.runc.v2"',
    cri('containerd.runtimes.runc.options'),
    `BinaryName = "${debian}/usr/sbin/runc"`,
    'SystemdCgroup = false',
  ];
  const sandboxed = [
    cri('containerd.runtimes.gvisor'),
    'runtime_type = "io.containerd.runsc.v1"',
    cri('containerd.runtimes.gvisor.options'),
    'TypeUrl = "io.containerd.runsc.v1.options"',
    `ConfigPath = "${directory}/runsc.toml"`,
  ];
  return `${[...lines, ...(gvisor ? sandboxed : [])].join('\n')}\n`;
}

function runscConfig(gvisor: string): string {
  return `binary_name = "${gvisor}/runsc"
[runsc_config]
  network = "sandbox"
  platform = "systrap"
`;
}

function cniConfig(directory: string): object {
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.88.0.0/16' }]],
    dataDir: `${directory}/cni-state`,
  };
  const bridge = {
    type: 'bridge',
    bridge: 'k8sbr0',
    isDefaultGateway: true,
    ipMasq: false,
    hairpinMode: true,
    ipam,
  };
  return {
    cniVersion: '1.0.0',
    name: 'test',
    plugins: [bridge, { type: 'portmap', capabilities: { portMappings: true } }],
  };
}
