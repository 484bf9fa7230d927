/** The settings as `serve` and the backends want them. */
import { tracingSettings } from '../../api/http/tracing/tracing-settings.ts';
import type { PressureSettings } from '../../control/capacity/pressure.ts';
import type { Policy } from '../../policy/policy.ts';
import type { ServeOptions } from '../../serve.ts';
import type { Settings } from '../../settings.ts';
import { SETTINGS } from '../../settings.ts';
import { clusterOf } from '../../settings/cluster-of.ts';
import type { Resolved } from '../../settings/resolve-settings.ts';
import type { BackendOptions, DockerSettings, ImageFlags } from '../verb.ts';

const DAY_MS = 24 * 3600 * 1000;

type FromSettings = Omit<
  ServeOptions,
  'backend' | 'asPlatform' | 'dataDir' | 'box' | 'egress' | 'buckets' | 'log' | 'archives'
>;

export function serveOptions(
  { settings, given }: Resolved,
  policy: Policy,
  warn: (message: string) => void,
): FromSettings {
  const { tlsCert, tlsKey, keepEventDays } = settings;
  return {
    ...settings.listen,
    ...(tlsCert !== undefined && { tls: { certFile: tlsCert, keyFile: tlsKey! } }),
    ...(settings.database !== undefined && { database: settings.database }),
    store: {
      place: settings.store,
      credentialsFile: settings.storeCredentials,
      accessKeyId: settings.storeAccessKeyId,
      secretKey: settings.storeSecretKey,
      sessionToken: settings.storeSessionToken,
    },
    ...(settings.allowBucketEndpoint && { bucketEndpoints: settings.allowBucketEndpoint }),
    insecure: settings.insecure,
    publicUrl: settings.publicUrl,
    previewDomains: settings.previewDomain,
    corsOrigins: settings.corsOrigin,
    openMetrics: settings.openMetrics,
    http2: settings.http2 !== 'off',
    previewConnections: settings.previewConnections,
    addressConnections: settings.addressConnections,
    budgets: { calls: settings.maxCalls, streams: settings.maxStreams },
    keepEvents: {
      events: settings.keepEvents,
      ...(keepEventDays !== undefined && { ageMs: keepEventDays * DAY_MS }),
    },
    webhooks: { allowPrivate: settings.webhookPrivate ?? false },
    policy,
    quota: { defaults: settings.defaultQuota ?? {}, maxima: settings.maxQuota ?? {} },
    pressure: pressureOf(settings),
    tracing: tracingSettings(tracingVariables(given), warn),
  };
}

export function backendOptions({
  settings,
  nameOf,
}: Resolved): Pick<
  BackendOptions,
  | 'runtime'
  | 'runsc'
  | 'images'
  | 'storage'
  | 'docker'
  | 'cluster'
  | 'serverPort'
  | 'platformRules'
  | 'poolSize'
  | 'probe'
  | 'nameOf'
> {
  const { runtime, runsc, storage, platformRules, pool, probe, listen } = settings;
  return {
    runtime,
    ...(runsc !== undefined && { runsc }),
    storage,
    docker: dockerOf(settings),
    images: imagesOf(settings),
    cluster: clusterOf(settings),
    serverPort: listen.port,
    platformRules,
    poolSize: pool,
    ...(probe && { probe }),
    nameOf,
  };
}

export const dockerOf = ({ dockerHost: host, dockerImage: image }: Settings): DockerSettings => ({
  host,
  image,
});

function imagesOf(settings: Settings): ImageFlags {
  const { registryConfig, registryMirror, allowRegistry, insecureRegistry } = settings;
  return {
    private: allowRegistry ?? [],
    insecure: insecureRegistry ?? [],
    mirrors: registryMirror ?? {},
    ...(registryConfig !== undefined && { credentialsFile: registryConfig }),
    ...(settings.imageStore !== undefined && { maxStoreBytes: settings.imageStore }),
    ...(settings.maxImageSize !== undefined && { maxImageBytes: settings.maxImageSize }),
  };
}

function pressureOf(settings: Settings): Partial<PressureSettings> {
  const { memoryOvercommit, diskOvercommit, memoryReserve, diskReserve, reclaim, warnAt, criticalAt } =
    settings;
  return {
    reclaim: reclaim === 'on',
    ...(warnAt !== undefined && { warnShare: warnAt / 100 }),
    ...(criticalAt !== undefined && { criticalShare: criticalAt / 100 }),
    ...(memoryOvercommit !== undefined && { memoryOvercommit }),
    ...(diskOvercommit !== undefined && { diskOvercommit }),
    ...(memoryReserve !== undefined && { memoryReserveBytes: memoryReserve }),
    ...(diskReserve !== undefined && { diskReserveBytes: diskReserve }),
  };
}

/** Secrets too: headers have the collector's key. */
function tracingVariables(given: Resolved['given']): Record<string, string> {
  return Object.fromEntries(
    SETTINGS.flatMap(({ name, group, env }) => {
      const found = given.get(name);
      return group === 'tracing' && found ? [[env!, found.texts.at(-1)!]] : [];
    }),
  );
}
