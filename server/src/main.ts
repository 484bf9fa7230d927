/**
 * The entry point, and the one place that names the backends there are. Everything is imported
 * when it is needed: a client verb loads neither a server nor a backend.
 */
import type { Backend, Orphan } from './backends/backend.ts';
import type { Probeable } from './backends/probing/probed-backend.ts';
import type { ClusterSettings } from './backends/kubernetes/cluster-settings.ts';
import type { KubernetesSettings } from './backends/kubernetes/settings.ts';
import type { BackendOptions, ClusterDeclarations, OpenedBackend } from './cli/verb.ts';
import type { BackendName } from './settings.ts';

const BACKENDS: Record<BackendName, (options: BackendOptions) => Promise<OpenedBackend>> = {
  async local(options) {
    const [{ openLocal }, { credentialsIn }] = await Promise.all([
      import('./backends/local/open-local.ts'),
      import('./host/images/registry/credentials.ts'),
    ]);
    const { credentialsFile, ...images } = options.images ?? {};
    const imageSettings = {
      ...images,
      ...(credentialsFile !== undefined && { credentials: credentialsIn(credentialsFile) }),
    };
    return probed(await openLocal({ ...options, imageSettings }), options);
  },
  async docker(options) {
    const { box, dir, docker, egress, policy } = options;
    const [{ dockerBackend }, { guestBinary }, { engineAddress }] = await Promise.all([
      import('./backends/docker/docker.ts'),
      import('./guest/guest-binary.ts'),
      import('./backends/docker/engine.ts'),
    ]);
    // Containers share these with this machine's root, unless their engine is on another machine.
    if ((docker?.host ?? engineAddress()).startsWith('unix:'))
      (await import('./host/kernel-limits.ts')).raiseKernelLimits();
    const installation = installationOf(dir);
    const baseImage = docker?.image ?? (process.env['CAY_DOCKER_IMAGE'] || undefined);
    const backend = dockerBackend({
      guestPath: guestBinary(),
      installation,
      host: docker?.host,
      baseImage,
      box,
      egress,
      policy,
    });
    return probed(destroyable(backend), options);
  },
  async 'kubernetes-job'(options) {
    const [{ kubernetesJobBackend }, { settings, cluster }] = await Promise.all([
      import('./backends/kubernetes/job/kubernetes-job.ts'),
      clusterSettings(options),
    ]);
    const { egress, policy, onError, onSwept } = options;
    const { warmPool } = cluster;
    const keep = keepIn(options);
    return destroyable(
      await kubernetesJobBackend({ ...settings, warmPool, keep, egress, policy, onError, onSwept }),
    );
  },
  async 'agent-sandbox'(options) {
    const [{ agentSandboxBackend }, { poolAndStorage }, { settings, cluster }] = await Promise.all([
      import('./backends/kubernetes/agent-sandbox/agent-sandbox.ts'),
      import('./backends/kubernetes/agent-sandbox/settings.ts'),
      clusterSettings(options),
    ]);
    const { egress, policy, onError, onSwept } = options;
    return destroyable(
      await agentSandboxBackend({
        ...settings,
        ...poolAndStorage(cluster),
        keep: keepIn(options),
        egress,
        policy,
        onError,
        onSwept,
      }),
    );
  },
  async memory({ egress, policy }) {
    const { memoryBackend } = await import('./backends/memory/memory.ts');
    return destroyable(memoryBackend({ egress, policy }));
  },
};

interface OnCluster {
  cluster: ClusterSettings;
  settings: KubernetesSettings;
}

/** Where backends on a cluster keep what the cluster does not. */
const keepIn = ({ dir, box }: Pick<BackendOptions, 'dir' | 'box'>) => ({ dir: `${dir}/kubernetes`, box });

/** Of a verb that has no flags for them, the settings are those of the environment. */
async function clusterSettings({
  dir,
  cluster: given,
  serverPort,
}: Pick<BackendOptions, 'dir' | 'cluster' | 'serverPort'>): Promise<OnCluster> {
  const [{ kubernetesSettings }, { settingsIn }, { clusterOf }] = await Promise.all([
    import('./backends/kubernetes/cluster-settings.ts'),
    import('./settings/resolve-settings.ts'),
    import('./settings/cluster-of.ts'),
  ]);
  const cluster = given ?? clusterOf(settingsIn(process.env));
  return {
    cluster,
    settings: kubernetesSettings(cluster, { installation: installationOf(dir), serverPort }),
  };
}

/** Has the server find out what works here; a verb of the command line does not wait for that. */
async function probed<B extends OpenedBackend & Probeable>(backend: B, options: BackendOptions): Promise<B> {
  if (!options.probe) return backend;
  const [{ probedBackend }, { mkdir }] = await Promise.all([
    import('./backends/probing/probed-backend.ts'),
    import('node:fs/promises'),
  ]);
  await mkdir(options.dir, { recursive: true });
  const file = `${options.dir}/probes-${backend.name}.json`;
  return probedBackend(backend, { file, onError: options.onError, ...options.probe });
}

/** What the backends on a cluster make in it. */
const DECLARATIONS: Record<string, (on: OnCluster) => Promise<ClusterDeclarations>> = {
  async 'kubernetes-job'({ settings }) {
    return (await import('./backends/kubernetes/job/render.ts')).kubernetesJobDeclarations(settings);
  },
  async 'agent-sandbox'({ settings, cluster }) {
    const [{ agentSandboxDeclarations }, { poolAndStorage }] = await Promise.all([
      import('./backends/kubernetes/agent-sandbox/render.ts'),
      import('./backends/kubernetes/agent-sandbox/settings.ts'),
    ]);
    return agentSandboxDeclarations({ ...settings, ...poolAndStorage(cluster) });
  },
};

async function declarationsOf(
  name: string,
  { dir, withSandbox }: { dir: string; withSandbox: boolean },
): Promise<ClusterDeclarations> {
  const [{ resolveSettings }, { policyOf }, { clusterOf }] = await Promise.all([
    import('./settings/resolve-settings.ts'),
    import('./settings/policy-of.ts'),
    import('./settings/cluster-of.ts'),
  ]);
  // The objects that all sandboxes share do not depend on the image of the guest.
  const env = withSandbox ? process.env : { CAY_KUBERNETES_GUEST_IMAGE: 'none', ...process.env };
  const resolved = resolveSettings({}, env);
  const on = await clusterSettings({
    dir,
    cluster: clusterOf(resolved.settings),
    serverPort: resolved.settings.listen.port,
  });
  return DECLARATIONS[name]!({ ...on, settings: { ...on.settings, policy: policyOf(resolved) } });
}

/** Several are the platforms of one composite; a single one stands alone. */
async function openBackend(names: string, options: BackendOptions): Promise<OpenedBackend> {
  const each = names.split(',') as BackendName[];
  await requireKnownRuntimes(each, options);
  if (each.length === 1) return BACKENDS[each[0]!](options);
  const { platformsBackend } = await import('./backends/composite/platforms.ts');
  const { platformRules: rules, onError } = options;
  const platforms = each.map((name) => ({ name, open: () => BACKENDS[name](options) }));
  const composite = await platformsBackend({ platforms, rules, onError });
  return Object.assign(composite, {
    // Destroying each platform closes it too.
    async destroy() {
      for (const name of each) await ((await composite.platforms.get(name)) as OpenedBackend).destroy();
    },
  });
}

/** The isolations that a backend has, by name. Absent are those whose platform may get others at any time. */
const RUNTIMES: Record<string, (options: BackendOptions) => Promise<readonly string[]>> = {
  async local() {
    return (await import('./backends/local/open-local.ts')).RUNTIME_NAMES;
  },
  async docker({ docker }) {
    return (await import('./backends/docker/engine.ts')).runtimesOfEngine(docker?.host);
  },
  async memory() {
    return ['memory'];
  },
};

/**
 * A misspelt name in what is allowed would forbid what was meant, and one that no backend has would fail
 * every start. A backend that does not answer cannot be asked.
 */
async function requireKnownRuntimes(backends: readonly string[], options: BackendOptions): Promise<void> {
  const { runtime, policy, nameOf } = options;
  const named = [
    // The memory backend has no isolation to choose.
    ...(runtime === undefined || backends.every((name) => name === 'memory')
      ? []
      : [{ flag: nameOf?.('runtime') ?? '--runtime', name: runtime }]),
    ...(policy?.runtimes ?? []).map((name) => ({
      flag: nameOf?.('allowRuntime') ?? '--allow-runtime',
      name,
    })),
  ];
  if (named.length === 0 || backends.some((name) => RUNTIMES[name] === undefined)) return;
  const { CayError, isCayError } = await import('@cay/sdk/client');
  const asked = backends.map((name) =>
    RUNTIMES[name]!(options).catch((error: unknown) => {
      if (isCayError(error, 'unavailable')) return named.map(({ name }) => name);
      throw error;
    }),
  );
  const known = (await Promise.all(asked)).flat();
  const unknown = named.find(({ name }) => !known.includes(name));
  if (!unknown) return;
  throw new CayError('invalid_argument', `${unknown.flag} names "${unknown.name}", which is unknown`, {
    details: { runtime: unknown.name, known },
    hint: `there are ${known.join(', ')}`,
  });
}

async function asPlatform(backend: Backend): Promise<Backend> {
  const { platformsBackend } = await import('./backends/composite/platforms.ts');
  return platformsBackend({ platforms: [{ name: backend.name, open: async () => backend }] });
}

async function surveyBackend(names: string, options: BackendOptions): Promise<Orphan[]> {
  const found: Orphan[] = [];
  for (const name of names.split(',') as BackendName[]) found.push(...(await surveyOne(name, options)));
  return found;
}

async function unwrittenFiles(dir: string) {
  return (await import('./backends/local/unwritten-files.ts')).unwrittenFiles(dir);
}

async function surveyOne(name: BackendName, options: BackendOptions): Promise<Orphan[]> {
  if (name === 'local') {
    const { surveyLocal } = await import('./backends/local/open-local.ts');
    return surveyLocal(options);
  }
  // The others settle nothing when they are opened.
  const backend = await BACKENDS[name](options);
  try {
    return (await backend.ability('sweep')?.sweep({ dryRun: true })) ?? [];
  } finally {
    await backend.close();
  }
}

/** Several data directories may share one engine or one cluster. */
function installationOf(dir: string): string {
  // Not imported: it would be loaded for every verb.
  const { createHash } = process.getBuiltinModule('node:crypto');
  return createHash('sha256').update(dir).digest('hex').slice(0, 12);
}

function destroyable<T extends Backend>(backend: T): T & OpenedBackend {
  return Object.assign(backend, {
    async destroy() {
      for (const { id } of await backend.list()) await backend.remove(id);
      await backend.close();
    },
  });
}

const { runCli } = await import('./cli/program.ts');
const exitCode = await runCli(
  {
    entry: import.meta.filename,
    openBackend,
    asPlatform,
    surveyBackend,
    unwrittenFiles,
    clusterBackends: Object.keys(DECLARATIONS),
    declarationsOf,
    toYaml: async (objects) => (await import('./backends/kubernetes/client/yaml.ts')).toYaml(objects),
  },
  process.argv.slice(2),
);
// Sockets that are kept alive for a next request must not hold a process that has none.
process.exit(exitCode);
