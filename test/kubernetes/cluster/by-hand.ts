/**
 * A cluster to look at: `npm run cluster [control-plane]`. Runs until it is interrupted, and leaves nothing.
 * A full one has the images of the tests, agent-sandbox and the RuntimeClass `gvisor`, and says what the
 * environment of a server that uses it has to be.
 */
import { startCluster, whyNoCluster } from './cluster.ts';
import { kubectl } from './kubectl.ts';
import { BASE_IMAGE, GUEST_IMAGE, importSandboxImages } from './sandbox-images.ts';

const tier = process.argv[2] === 'control-plane' ? 'control-plane' : 'full';
const whyNoAgentSandbox = await whyNoCluster(tier, { agentSandbox: true });
if (whyNoAgentSandbox !== undefined) console.error(`no agent-sandbox: ${whyNoAgentSandbox}`);
const cluster = await startCluster(tier, { agentSandbox: whyNoAgentSandbox === undefined });
try {
  if (tier === 'full') {
    await importSandboxImages(cluster);
    const api = await kubectl(cluster);
    if (cluster.whyNoGvisor === undefined) await api.createRuntimeClass('gvisor');
    else console.error(`no gVisor: ${cluster.whyNoGvisor}`);
    api.close();
  }
  const env = {
    KUBECONFIG: cluster.kubeconfig,
    CAY_KUBERNETES_GUEST_IMAGE: GUEST_IMAGE,
    CAY_KUBERNETES_BASE_IMAGE: BASE_IMAGE,
    CAY_KUBERNETES_PULL_POLICY: 'Never',
  };
  for (const [name, value] of Object.entries(env)) console.log(`export ${name}=${value}`);
  console.error(`logs are in ${cluster.directory}/logs; interrupt to end it`);
  const alive = setInterval(() => {}, 60_000);
  await new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, resolve);
  });
  clearInterval(alive);
} finally {
  await cluster.stop();
}
