/**
 * Builds the control plane of `control.ts`, in three steps: the object graph, without timers or changes; the
 * recovery of what an earlier server left; then the timers.
 *
 * Every part is built from parts above it. `Core` has the parts that need no other verb.
 */
import { openHistogram, type Histogram } from '../lib/histogram.ts';
import { policyFacts } from '../policy/policy.ts';
import { openArchiving } from './pausing/archive.ts';
import { PRESSURE_DEFAULTS } from './capacity/pressure.ts';
import { bucketVerbs } from './buckets/bucket-verbs.ts';
import { openProjectBuckets } from './buckets/project-buckets.ts';
import { mountSource } from './buckets/mount-source.ts';
import { openMountWrites } from './buckets/mount-writes.ts';
import { openSyncing } from './buckets/syncing.ts';
import { writesBuckets } from './buckets/writes-buckets.ts';
import { controlMetrics } from './capacity/control-metrics.ts';
import { watchHealth } from './capacity/health.ts';
import { openRelief } from './capacity/relief.ts';
import { openCommandKeys } from './commands/command-keys.ts';
import { openCommands } from './commands/open-commands.ts';
import type { ControlOptions } from './control-options.ts';
import type { Control, OperatorVerbs } from './control.ts';
import { openCore, type Core } from './core.ts';
import { enforcementVerbs } from './enforcement/enforcement-verbs.ts';
import { trustAuthority } from './egress/trust-authority.ts';
import { openNetworkVerbs } from './egress/network-verbs.ts';
import { eventVerbs } from './events/event-verbs.ts';
import { webhookVerbs } from './events/webhooks/webhook-verbs.ts';
import { openWebhooks, type Webhooks } from './events/webhooks/webhooks.ts';
import { openHostPorts } from './host-ports/open-host-ports.ts';
import { imageVerbs } from './images/image-verbs.ts';
import { shareImages } from './images/share-images.ts';
import { openInterpreter } from './interpreter/open-interpreter.ts';
import { openIdleDetector } from './pausing/idle-detector.ts';
import { openIdling } from './pausing/idle-policy.ts';
import { openPauseLevels } from './pausing/pause-levels.ts';
import { openPausing } from './pausing/pausing.ts';
import { openWaker } from './pausing/wake.ts';
import { offeredCapabilities } from './placement/offered-capabilities.ts';
import { rememberPlacements } from './placement/placement.ts';
import { backupVerb } from './recovery/backup.ts';
import { followBackend } from './recovery/follow-backend.ts';
import { openReconciling } from './recovery/reconcile.ts';
import { finishForks, undoForks } from './recovery/recover-forks.ts';
import { recoverSandboxes } from './recovery/recover-sandboxes.ts';
import { recoverSnapshots } from './recovery/recover-snapshots.ts';
import { recoverVolumes } from './recovery/recover-volumes.ts';
import { openSettler } from './recovery/settle-sandbox.ts';
import { sweepVerbs } from './recovery/sweep.ts';
import { createVerb } from './sandboxes/create-sandbox.ts';
import { openDestroyer, REMOVE_RETRY_MS } from './sandboxes/destroy-sandbox.ts';
import { expireSandbox } from './sandboxes/expire-sandbox.ts';
import { openExpiry } from './sandboxes/expiry.ts';
import { openGuestAccess } from './sandboxes/guest-access.ts';
import { insideVerbs } from './sandboxes/inside-verbs.ts';
import { openMaker } from './sandboxes/make-sandbox.ts';
import { openPlanning } from './sandboxes/plan-sandbox.ts';
import { portVerbs } from './sandboxes/port-verbs.ts';
import { openStateRecorder } from './sandboxes/record-state.ts';
import { openResizing } from './sandboxes/resize-sandbox.ts';
import { sandboxVerbs } from './sandboxes/sandbox-verbs.ts';
import { openStarter } from './sandboxes/start-sandbox.ts';
import { openStopper } from './sandboxes/stop-sandbox.ts';
import { validateVerb } from './sandboxes/validate-create.ts';
import { openSecretVerbs } from './secrets/secret-verbs.ts';
import { compareVerb } from './snapshots/compare.ts';
import { openForkChildren } from './snapshots/fork-children.ts';
import { forkVerb } from './snapshots/fork.ts';
import { importVerb } from './snapshots/import-snapshot.ts';
import { openRetaining } from './snapshots/retention.ts';
import { openStatRings } from './stats/stat-rings.ts';
import { openStatSampler } from './stats/stat-sampler.ts';
import { statsReader, statsVerbs } from './stats/stats-verbs.ts';
import { openMoving } from './placement/move-sandbox.ts';
import { openRollingBack } from './snapshots/rollback.ts';
import { openSnapshotRegistry } from './snapshots/snapshot-registry.ts';
import { snapshotVerbs } from './snapshots/snapshot-verbs.ts';
import { guardRollback } from './tools/guard-rollback.ts';
import { openTools } from './tools/open-tools.ts';
import { openBuilds } from './templates/builds/builds.ts';
import { templateVerbs } from './templates/template-verbs.ts';
import { keyVerbs } from './tenants/key-verbs.ts';
import { projectVerbs } from './tenants/project-verbs.ts';
import { volumeVerbs } from './volumes/volume-verbs.ts';

export type { Control } from './control.ts';
export type { ControlOptions } from './control-options.ts';

/** Two hours of history for each sandbox, in 42 KB. */
const STATS_EVERY_MS = 15_000;
const STATS_SLOTS = 480;

export async function openControl(options: ControlOptions): Promise<Control> {
  const closing = new AbortController();
  const core = await openCore(options, closing.signal);
  const parts = buildParts(core, options);
  // From now on backends open buckets for mounts that they have.
  if (options.buckets) options.buckets.source = parts.bucketSource;
  const { sandboxes, snapshots } = core.records;
  rememberPlacements(core.backend, [...(await sandboxes.list({})), ...(await snapshots.all())]);
  await lowerTimeouts(core);
  await shareImages(core);
  // Until then guests of running sandboxes reach nothing.
  await core.networks.applyAll();
  // Watched before the recovery lists sandboxes, so that no change falls in between.
  const changes = core.backend.watch({ signal: closing.signal });
  await recover(parts);
  followBackend(changes, parts).catch(core.onError);
  await start(parts, options);
  const { control, closers } = await buildVerbs(parts, options);
  return { ...control, close: () => close(parts, closers, closing, options) };
}

type Parts = ReturnType<typeof buildParts>;

/** What has to stop before the rest of the control plane. */
type Closers = readonly { close(): Promise<void> }[];

function buildParts(core: Core, options: ControlOptions) {
  const { clock, onError, records } = core;
  const { sandboxes } = records;
  const expiry = openExpiry({
    next: () => sandboxes.nextExpiry(),
    due: () => sandboxes.expired(clock.now()),
    shorten: () => sandboxes.shorten(clock.now(), REMOVE_RETRY_MS),
    now: clock.now,
    onError,
  });
  const state = openStateRecorder({ ...core, expiry });
  const projectBuckets = openProjectBuckets({ ...core, endpoints: new Set(options.bucketEndpoints) });
  const bucketSource = mountSource({ ...core, projectBuckets });
  const mountWrites = openMountWrites(core, options.buckets);
  const syncing = openSyncing({ ...core, mountWrites, projectBuckets });
  const starter = openStarter({ ...core, state, syncing });
  const maker = openMaker({ ...core, starter, state });
  const stopper = openStopper({ ...core, state });
  const registry = openSnapshotRegistry({ ...core, maker });
  const destroyer = openDestroyer({ ...core, expiry, snapshots: registry });

  const archiving = openArchiving({ ...core, registry, starter });
  const waker = openWaker({ ...core, archiving, starter, state });
  const levels = openPauseLevels({ ...core, archiving, state, waker });
  const pausing = openPausing({ ...core, levels, waker });
  const idleDetector = openIdleDetector(core);
  const beforeRemoval = writesBuckets(destroyer, syncing, waker);
  const idling = openIdling({
    ...core,
    destroyer: beforeRemoval,
    idleDetector,
    pausing,
    checkEveryMs: options.idleLookMs,
  });
  const relief = openRelief({ ...core, idleDetector, pausing, unusedMs: options.reclaimUnusedMs });

  const settler = openSettler({ ...core, starter, state });
  const reconciling = openReconciling({ ...core, settler, everyMs: options.reconcileMs });
  const retention = openRetaining({ ...core, registry });
  const resizing = openResizing({ ...core, settler });
  const rollingBack = openRollingBack({ ...core, registry, retention, settler, state, waker });
  const moving = openMoving({ ...core, registry, starter, state, waker });
  const forkChildren = openForkChildren({ ...core, destroyer, maker, registry });
  const planning = openPlanning({ ...core, registry });
  const guestAccess = openGuestAccess({ ...core, maker, waker });
  const ports = portVerbs({ ...core, guestAccess });
  const { previewConnection } = ports;
  const hostPorts = openHostPorts({ ...core, guestAccess, previewConnection });
  const network = openNetworkVerbs({
    ...core,
    guestAccess,
    shared: options.leases !== undefined,
  });
  const secrets = openSecretVerbs(core);
  const health = watchHealth({ ...core, errors: core.recentErrors, now: clock.now });
  const { stats: statsDirectory } = options.directories;
  const rings =
    statsDirectory === undefined
      ? undefined
      : openStatRings({
          directory: statsDirectory,
          intervalMs: options.statsEveryMs ?? STATS_EVERY_MS,
          slots: STATS_SLOTS,
        });
  const sampler = rings && openStatSampler({ ...core, rings, read: statsReader(core) });
  return {
    ...core,
    bucketSource,
    commandTimes: openHistogram(),
    createTimes: openHistogram(),
    destroyer,
    expiry,
    forkChildren,
    guestAccess,
    health,
    hostPorts,
    idling,
    maker,
    mountWrites,
    moving,
    network,
    pausing,
    planning,
    projectBuckets,
    ports,
    reconciling,
    registry,
    relief,
    resizing,
    retention,
    rings,
    rollingBack,
    sampler,
    secrets,
    settler,
    starter,
    state,
    stopper,
    syncing,
    waker,
  };
}

/**
 * An earlier server may have allowed longer timeouts. They are lowered at once, because this server enforces
 * them; limits of processes are lowered at the next start.
 */
async function lowerTimeouts({ clock, policy, recordEvent, records }: Core): Promise<void> {
  const { timeoutMs: longest } = policy.maxima;
  if (longest === null) return;
  await records.transaction(async (tx) => {
    const data = { fields: ['timeoutMs'], cause: 'policy' };
    for (const row of await tx.sandboxes.lowerTimeouts(longest, clock.now()))
      await recordEvent(tx, 'sandbox.updated', row, undefined, data);
  });
}

async function recover(parts: Parts): Promise<void> {
  const forks = await undoForks(parts);
  await recoverSandboxes(parts);
  await recoverSnapshots(parts);
  await recoverVolumes(parts);
  finishForks(parts, forks);
}

async function start(
  parts: Parts,
  { pressure: { reclaim = PRESSURE_DEFAULTS.reclaim } = {} }: ControlOptions,
): Promise<void> {
  parts.expiry.start(expireSandbox(parts));
  parts.retention.start();
  parts.idling.start();
  parts.reconciling.start();
  parts.sampler?.start();
  await parts.commandLogs.start();
  await parts.hostPorts.start();
  if (reclaim) parts.relief.start();
}

/** The verbs, and those of their parts that have to be closed. */
async function buildVerbs(
  parts: Parts,
  options: ControlOptions,
): Promise<{ control: Omit<Control, 'close'>; closers: Closers }> {
  const { policy, records, pausing, reporter } = parts;
  // Opened after the recovery: from now on it delivers events.
  const webhooks = await openWebhooks({
    ...options.webhooks,
    records,
    quota: parts.quota,
    secret: await records.secrets.get('webhooks'),
    onError: reporter('webhooks'),
  });
  const control = {
    policy,
    network: parts.network.verbs,
    hostPorts: parts.hostPorts.verbs,
    secrets: parts.secrets.verbs,
    ...sandboxCalls(parts),
    ...snapshotVerbs(parts),
    ...importVerb(parts),
    ...compareVerb(parts),
    ...forkVerb(parts),
    rollback: parts.rollingBack.rollback,
    ...statsVerbs(parts),
    move: parts.moving.move,
    pause: pausing.pause,
    resume: pausing.resume,
    lease: pausing.lease,
    ...templateVerbs(parts),
    images: imageVerbs(parts),
    volumes: volumeVerbs(parts),
    buckets: bucketVerbs({ ...parts, mounts: options.buckets }),
    ...(await tenantVerbs({ ...parts, webhooks })),
    ...operatorVerbs({ ...parts, webhooks }, options),
  };
  const builds = await openBuilds({
    control,
    records,
    directory: options.directories.buildFiles,
    quota: parts.quota,
    onError: reporter('builds'),
  });
  const interpreter = openInterpreter({ control: { ...control, builds }, onMade: options.onTemplateMade });
  const tools = openTools({
    control,
    records,
    quota: parts.quota,
    connect: (id) => parts.backend.connect(id),
    hold: (id) => parts.activity.hold(id, 'command'),
    directories: options.directories,
    onError: reporter('tools'),
  });
  const rollback = guardRollback(control.rollback, tools.verbs);
  const enforcement = enforcementVerbs({ ...parts, control, version: options.version ?? '' });
  return {
    control: { ...control, rollback, builds, interpreter, tools: tools.verbs, enforcement },
    closers: [webhooks, builds, tools],
  };
}

/** Sandboxes and the commands in them. */
function sandboxCalls(parts: Parts) {
  const { activity, backend, commandLogs, guestAccess, lookup, onError, ports, quota, records } = parts;
  const ofSandboxes = sandboxVerbs(parts);
  const { create } = createVerb({ ...parts, start: ofSandboxes.start });
  return {
    ...ofSandboxes,
    ...ports,
    ...insideVerbs(parts),
    ...validateVerb(parts),
    create: timed(parts.createTimes, create),
    commands: openCommands({
      find: lookup.find,
      enter: async (principal, ref) => guestAccess.enter((await lookup.find(principal, ref)).id),
      connect: (id, call) => backend.connect(id, call),
      observe: (id, call) => backend.observe(id, call),
      attend: (id) => activity.hold(id, 'client'),
      expose: ports.expose,
      sandboxes: records.sandboxes,
      events: records.events,
      keys: openCommandKeys(records, quota),
      logs: commandLogs,
      trust: trustAuthority(parts),
      onStarted: (seconds) => parts.commandTimes.observe(seconds),
      onError,
    }),
  };
}

/** Projects, keys, events and webhooks. */
async function tenantVerbs(parts: Parts & { webhooks: Webhooks }) {
  const { idempotency, projects, records, webhooks } = parts;
  const secrets = { e2b: await records.secrets.get('e2b') };
  return {
    events: eventVerbs(records),
    webhooks: webhookVerbs(webhooks, idempotency),
    keys: keyVerbs({ records, projects, idempotency, secret: await records.secrets.get('keys') }),
    projects: projectVerbs(parts),
    tokens: { secret: (surface: keyof typeof secrets) => secrets[surface], epochs: records.tokenEpochs },
  };
}

function operatorVerbs(parts: Parts & { webhooks: Webhooks }, { takeBackup }: ControlOptions): OperatorVerbs {
  const { backend, health, policy, pressure, projects, quota, records, webhooks } = parts;
  return {
    ...sweepVerbs(parts),
    health: (principal) => health.check(principal.role === 'admin' ? undefined : principal.project),
    ready: health.ready,
    noteError: health.noteError,
    capabilities: async (call) => ({
      ...offeredCapabilities(await backend.capabilities(call)),
      policy: policyFacts(policy),
    }),
    metrics: controlMetrics({
      records,
      pressure,
      creates: parts.createTimes.snapshot,
      commandStarts: parts.commandTimes.snapshot,
      projects,
      quota,
      webhooks: webhooks.counts,
      network: parts.network.counts,
    }),
    backup: backupVerb(records.events, takeBackup),
    counts: records.sandboxes.counts,
  };
}

/** The same call, whose successful durations are counted. */
function timed<A extends unknown[], T>(
  histogram: Histogram,
  call: (...given: A) => Promise<T>,
): (...given: A) => Promise<T> {
  return async (...given) => {
    const from = performance.now();
    const result = await call(...given);
    histogram.observe((performance.now() - from) / 1000);
    return result;
  };
}

async function close(
  parts: Parts,
  ofVerbs: Closers,
  closing: AbortController,
  { archives, leases }: ControlOptions,
): Promise<void> {
  const { commandLogs, hostPorts, network, sampler, secrets } = parts;
  const first: Closers = [
    commandLogs,
    hostPorts,
    network,
    secrets,
    ...(sampler ? [sampler] : []),
    ...ofVerbs,
  ];
  await Promise.all(first.map((part) => part.close()));
  closing.abort();
  parts.pressure.close();
  parts.health.close();
  await parts.idling.close();
  await parts.expiry.stop();
  await parts.relief.close();
  await parts.reconciling.close();
  await parts.maker.settled();
  await parts.retention.close();
  await parts.activity.close();
  await parts.backend.close();
  await archives?.close();
  await leases?.close();
  await parts.records.close();
}
