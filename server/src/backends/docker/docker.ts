/**
 * The docker backend: a sandbox is a container of any image, with our guest as its first process.
 *
 * All that has to be known lives in Docker: labels say which sandbox a container is and from what
 * spec it was made, its name says which incarnation it is and whether it was asked to start or
 * stop (`container-name.ts`). A server that starts anew finds everything by label.
 *
 * The guest is reached through `docker exec`: each connection is a bridge between the exec's
 * standard streams and the socket on which the guest listens. There is no network.
 */
import { CayError, isCayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { Guest } from '../../guest/guest.ts';
import type { GuestLink } from '../../guest/guest-link.ts';
import { redialling } from '../../guest/redialling-link.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import type { Backend, CallOptions, Freezing, Observation, Resizing } from '../backend.ts';
import { allowsRuntime, preferredRuntime, requireRuntime } from '../../policy/allow-runtime.ts';
import { DEFAULT_POLICY, type Policy } from '../../policy/policy.ts';
import { requireLimits, requireSandboxId, requireSpec } from '../support/check.ts';
import { checkSpec } from '../support/check-spec.ts';
import { guestWithEnv, imageEnvOf } from '../support/image-env.ts';
import { news } from '../support/observation-feed.ts';
import { hashOf } from '../support/spec-hash.ts';
import { startMain } from '../support/start-main.ts';
import { requireAccountFiles } from './account-files.ts';
import { GUEST_PATH, LABELS, SOCKET_PATH, containerConfig, resources } from './container-config.ts';
import { absent, observationOf } from './container-state.ts';
import { toStats, type ContainerStats } from './container-stats.ts';
import { dockerContainers, type Found } from './containers.ts';
import { dockerClient } from './docker-client.ts';
import { engineAddress, lookAtEngine, type Engine } from './engine.ts';
import { feedEvents } from './event-feed.ts';
import { execStream } from './exec-stream.ts';
import { dockerImages } from './images.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

export interface DockerOptions {
  /** The guest's program on this machine. */
  guestPath: string;
  /** `unix:///path` or `tcp://name:port`. Default: `DOCKER_HOST`, or `/var/run/docker.sock`. */
  host?: string;
  /** Tells the sandboxes of several servers that share an engine apart. Default `default`. */
  installation?: string;
  /** The image that the template `base` stands for. */
  baseImage?: string;
  /** Which runtimes and images may be asked for. */
  policy?: Policy;
  /** Sandboxes started at the same time; more only makes each slower. */
  startsAtOnce?: number;
}

export type DockerBackend = Backend & Resizing & Freezing;

interface Live {
  container: string;
  link: GuestLink;
  guest: Guest;
  oomKills: number;
}

const DEFAULT_GRACE_MS = 10_000;
/** How long a started guest has to answer. */
const ANSWER_MS = 30_000;
/** How much longer than its grace a stop may take before it is forced. */
const STOP_SLACK_MS = 2_000;
const KILL_MS = 30_000;

export function dockerBackend(options: DockerOptions): DockerBackend {
  const installation = options.installation ?? 'default';
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(installation) || installation.length > 64) {
    throw new CayError(
      'invalid_argument',
      `Installation "${installation}" must be lower-case letters, digits and single dashes`,
    );
  }
  const client = dockerClient(options.host ?? engineAddress());
  const containers = dockerContainers(client, installation);
  const { guestPath, baseImage = 'debian:stable-slim', policy = DEFAULT_POLICY } = options;
  const images = dockerImages(client, { installation, guestPath, baseImage, policy });
  const starts = new Semaphore(options.startsAtOnce ?? 8);
  const changes = news();
  const live = new Map<SandboxId, Live>();
  const closing = new AbortController();
  let engine: Promise<Engine> | undefined;
  let feeding = false;
  /** The least limit of open files that the engine was not allowed to set. */
  let openFilesRefused = Number.POSITIVE_INFINITY;

  function lookedAt(): Promise<Engine> {
    return (engine ??= lookAtEngine(client, { installation }).catch((error: unknown) => {
      engine = undefined;
      throw error;
    }));
  }

  /** Rejects what cannot be or is not allowed, and tells which runtime it is to have. */
  async function check(spec: SandboxSpec): Promise<string> {
    const known = await lookedAt();
    if (spec.runtime !== undefined) requireRuntime(policy, spec.runtime, known.runtimes);
    checkSpec(spec, 'Docker', known);
    return spec.runtime ?? preferredRuntime(policy, known.defaultRuntime, known.runtimes);
  }

  async function look(id: SandboxId, call: CallOptions = {}): Promise<Observation> {
    const found = await containers.find(id, call);
    if (!found?.inspect.State.Running) hangUp(id, 'it is not running');
    return found ? observationOf(found.name, found.inspect) : absent(id);
  }

  /** The container of a sandbox that must be ready. */
  async function readyContainer(id: SandboxId, action: string, call: CallOptions = {}): Promise<Found> {
    const found = await containers.find(id, call);
    if (!found) throw new CayError('not_found', `Cannot ${action}: sandbox "${id}" does not exist`);
    const { phase, message } = observationOf(found.name, found.inspect);
    if (phase === 'ready') return found;
    hangUp(id, `it is ${phase}`);
    throw new CayError(
      'failed_precondition',
      `Cannot ${action}: sandbox "${id}" is ${phase}${message ? ` (${message})` : ''}`,
    );
  }

  function hangUp(id: SandboxId, reason: string): void {
    live.get(id)?.link.close(reason);
    live.delete(id);
  }

  /**
   * The link to the guest of a running container, dialled if there is none yet. In one that was just started
   * no code of the sandbox has run yet.
   */
  function liveOf({ container, name, inspect }: Found, { justStarted = false } = {}): Live {
    const { id, incarnation } = name;
    const now = live.get(id);
    if (now) return now;
    const link = redialling({
      sandbox: id,
      incarnation,
      async dial(signal) {
        const action = `reach the guest of sandbox "${id}"`;
        if (!justStarted) await requireAccountFiles(client, container, { action, signal });
        justStarted = false;
        return execStream(client, { container, argv: [GUEST_PATH, 'bridge', SOCKET_PATH], action, signal });
      },
      async whyGone() {
        const found = await containers.find(id);
        if (!found) return 'it was removed';
        if (found.container !== container || found.name.incarnation !== incarnation)
          return 'it was started anew';
        return found.inspect.State.Running ? undefined : 'it is not running';
      },
    });
    const made: Live = {
      container,
      link,
      guest: guestWithEnv(link.guest, imageEnvOf(inspect.Config.Env ?? [])),
      oomKills: 0,
    };
    live.set(id, made);
    return made;
  }

  /** Creates and starts the container of a sandbox that was absent. */
  async function create(id: SandboxId, spec: SandboxSpec, call: CallOptions): Promise<void> {
    const [known, runtime] = [await lookedAt(), await check(spec)];
    const image = await images.prepare(spec.template, call);
    for (;;) {
      const setOpenFiles = spec.limits.openFiles < openFilesRefused;
      const config = containerConfig(id, spec, {
        installation,
        specHash: hashOf(spec),
        image: image.id,
        runtime,
        machine: known.machine,
        setOpenFiles,
        diskUsedBytes: known.diskCountsImage ? image.sizeBytes : 0,
      });
      const container = await containers.create({ id, incarnation: 1, mark: 'starting' }, config, call);
      try {
        return await containers.start(id, container, call);
      } catch (error) {
        await containers.remove(id, container);
        // An engine that may not raise the limit has a lower one, which every container then gets.
        if (!setOpenFiles || !isCayError(error) || !/setting rlimits?\b.*not permitted/.test(error.message))
          throw error;
        openFilesRefused = Math.min(openFilesRefused, spec.limits.openFiles);
      }
    }
  }

  /** Waits for the guest of a container that was started, and lets it make what the image lacks. */
  async function finish(id: SandboxId, spec: SandboxSpec, call: CallOptions): Promise<Observation> {
    const found = await containers.find(id, call);
    if (!found) throw new CayError('conflict', `Cannot start sandbox "${id}": somebody removed it meanwhile`);
    const { link, guest } = liveOf(found, { justStarted: true });
    await link.ready({ ...call, timeoutMs: ANSWER_MS });
    const root = guest.files('root');
    // Docker has made the working directory of a read-only root, where the guest could not.
    if (!spec.readOnlyRoot && (await root.mkdir(spec.workdir, call)))
      await root.chown(spec.workdir, spec.user, call);
    await startMain(guest, spec);
    const name = { id, incarnation: found.name.incarnation };
    await containers.rename(found, name, call);
    return observationOf(name, found.inspect);
  }

  /** Starts what was absent, stopped, failed or left half-started. */
  async function startUp(
    id: SandboxId,
    spec: SandboxSpec,
    before: Found | undefined,
    call: CallOptions,
  ): Promise<Observation> {
    try {
      if (!before) await create(id, spec, call);
      else if (!before.inspect.State.Running) {
        requireStartable(before, spec);
        await requireAccountFiles(client, before.container, {
          action: `start sandbox "${id}"`,
          signal: call.signal,
        });
        await relimit(id, before, spec, call);
        const fresh = before.inspect.State.Status === 'created';
        await containers.rename(
          before,
          { id, incarnation: before.name.incarnation + (fresh ? 0 : 1), mark: 'starting' },
          call,
        );
        await containers.start(id, before.container, call);
      }
      return await finish(id, spec, call);
    } catch (error) {
      hangUp(id, 'it could not be started');
      const found = await containers.find(id).catch(() => undefined);
      if (found && (!before || before.inspect.State.Status === 'created'))
        await containers.remove(id, found.container);
      else if (found) {
        await containers.rename(found, { ...found.name, mark: 'stopping' });
        await containers.kill(found);
      }
      throw error;
    }
  }

  /** A container that was made with what is not allowed any more does not run again. */
  function requireStartable({ inspect }: Found, { template }: SandboxSpec): void {
    const { Runtime: runtime } = inspect.HostConfig;
    if (runtime !== undefined) requireRuntime(policy, runtime, [runtime]);
    images.requireAllowed(template);
  }

  /** Gives a container that does not run the limits that it is to have by now. */
  async function relimit(
    id: SandboxId,
    { container, inspect }: Found,
    { limits }: SandboxSpec,
    call: CallOptions,
  ): Promise<void> {
    const { cpus, memoryBytes, pids } = limits;
    const wanted = Object.entries(resources({ cpus, memoryBytes, pids }, (await lookedAt()).machine));
    const has: Record<string, unknown> = { ...inspect.HostConfig };
    // The engine tells no limit of processes as nothing at all.
    if (wanted.every(([name, value]) => (has[name] ?? -1) === value)) return;
    const action = `limit sandbox "${id}"`;
    await client.json('POST', `/containers/${container}/update`, {
      action,
      body: Object.fromEntries(wanted),
      ...call,
    });
  }

  return {
    name: 'docker',

    async capabilities(call) {
      const { runtimes, abilities, notes } = await lookedAt();
      const allowed = runtimes.filter((name) => allowsRuntime(policy, name));
      return { backend: 'docker', runtimes: allowed, templates: await images.list(call), abilities, notes };
    },

    async validate(spec, call) {
      await check(spec);
      await images.check(spec.template, call);
    },

    async ensure(id, spec, call = {}) {
      requireSandboxId(id);
      requireSpec(spec);
      return changes.changing(id, async () => {
        const found = await containers.find(id, call);
        if (found && found.inspect.Config.Labels?.[LABELS.specHash] !== hashOf(spec)) {
          throw new CayError(
            'already_exists',
            `Cannot ensure sandbox "${id}": it was made from a different spec`,
          );
        }
        if (found?.inspect.State.Running && found.name.mark !== 'starting') {
          // A stop that was cut off before it did anything is taken back.
          await containers.rename(found, { id, incarnation: found.name.incarnation }, call);
          if (!found.inspect.State.Paused) return observationOf(found.name, found.inspect);
          await unpause(id, found.container, call);
          return look(id, call);
        }
        if (!found?.inspect.State.Running) hangUp(id, 'it is started anew');
        return starts.run(() => startUp(id, spec, found, call));
      });
    },

    async observe(id, call) {
      requireSandboxId(id);
      return look(id, call);
    },

    list: (call) => containers.observeAll(call),

    watch(call = {}) {
      const iterator = changes.subscribe({ signal: call.signal });
      if (!feeding) {
        feeding = true;
        const feed = feedEvents(client, {
          installation,
          signal: closing.signal,
          observe: look,
          observeAll: () => containers.observeAll(),
          known: changes.known,
          learn: changes.learn,
          tell: changes.see,
        });
        // It goes on by itself whatever the engine answers.
        inBackground(feed, ignoreFailure);
      }
      return iterator;
    },

    async connect(id, call) {
      requireSandboxId(id);
      const now = live.get(id);
      if (now?.link.current) return now.guest;
      const found = await readyContainer(id, 'connect', call);
      if (found.inspect.State.Paused)
        throw new CayError('failed_precondition', `Cannot connect: sandbox "${id}" is frozen`);
      const { link, guest } = liveOf(found);
      await link.ready({ ...call, timeoutMs: ANSWER_MS });
      return guest;
    },

    async stats(id, call) {
      requireSandboxId(id);
      const action = `read the stats of sandbox "${id}"`;
      const found = await readyContainer(id, action, call);
      const known = await lookedAt();
      const now = liveOf(found);
      const [read] = await Promise.all([
        client.json('GET', `/containers/${found.container}/stats`, {
          action,
          query: { stream: false, 'one-shot': true },
          ...call,
        }),
        // Only the guest counts these. It does not answer while it is frozen, and then nothing is killed
        // either.
        found.inspect.State.Paused ||
          now.link.current?.stats(call).then(
            ({ oomKills }) => (now.oomKills = oomKills),
            () => {},
          ),
      ]);
      const { Memory } = found.inspect.HostConfig;
      return toStats(read as ContainerStats, {
        memoryLimitBytes: Memory === known.machine.memoryBytes ? 0 : Memory,
        diskLimitBytes: Number(found.inspect.Config.Labels?.[LABELS.diskBytes]) || null,
        oomKills: now.oomKills,
      });
    },

    async stop(id, { graceMs = DEFAULT_GRACE_MS, ...call } = {}) {
      requireSandboxId(id);
      return changes.changing(id, async () => {
        const found = await containers.find(id, call);
        if (!found) throw new CayError('not_found', `Cannot stop sandbox "${id}": it does not exist`);
        // Noted first, so that an end which comes while nobody looks is not taken for a crash.
        const name = { ...found.name, mark: 'stopping' as const };
        await containers.rename(found, name, call);
        if (found.inspect.State.Running) {
          if (found.inspect.State.Paused) await unpause(id, found.container, call);
          await liveOf(found)
            .link.ready({ timeoutMs: STOP_SLACK_MS })
            .then((guest) => guest.shutdown(graceMs))
            .catch(() => {}); // What does not answer is ended by force.
          if (!live.get(id)?.link.current && (await containers.ended(found, STOP_SLACK_MS)))
            hangUp(id, 'it was stopped');
          else {
            hangUp(id, 'it was stopped');
            await containers.kill(found);
            await containers.ended(found, KILL_MS);
          }
        }
        const { incarnation, uid, runtime } = observationOf(name, found.inspect);
        return { id, phase: 'stopped', incarnation, uid, runtime };
      });
    },

    async remove(id, call) {
      requireSandboxId(id);
      await changes.changing(id, async () => {
        hangUp(id, 'it was removed');
        const found = await containers.find(id, call);
        if (found) await containers.remove(id, found.container);
        return absent(id);
      });
    },

    async resize(id, limits, call) {
      requireSandboxId(id);
      requireLimits(limits);
      const action = `resize sandbox "${id}"`;
      const { container } = await readyContainer(id, action, call);
      const { machine } = await lookedAt();
      if (limits.diskBytes !== undefined && limits.diskBytes !== null) {
        throw new CayError('unsupported', `Cannot ${action}: Docker cannot change the disk of a container`);
      }
      const used = await this.stats(id, call);
      for (const [limit, inUse] of [
        ['memoryBytes', used.memoryBytes],
        ['pids', used.pids],
      ] as const) {
        const wanted = limits[limit];
        if (typeof wanted === 'number' && wanted < inUse) {
          throw new CayError(
            'failed_precondition',
            `Cannot ${action}: ${inUse} of "${limit}" are in use, more than the ${wanted} asked for`,
          );
        }
      }
      await client.json('POST', `/containers/${container}/update`, {
        action,
        body: resources(limits, machine),
        ...call,
      });
    },

    async freeze(id, call) {
      requireSandboxId(id);
      const action = `freeze sandbox "${id}"`;
      const { container, inspect } = await readyContainer(id, action, call);
      if (!inspect.State.Paused)
        await client.json('POST', `/containers/${container}/pause`, { action, ...call });
    },

    async thaw(id, call) {
      requireSandboxId(id);
      const { container, inspect } = await readyContainer(id, `thaw sandbox "${id}"`, call);
      if (inspect.State.Paused) await unpause(id, container, call);
    },

    async close() {
      closing.abort();
      for (const id of live.keys()) hangUp(id, 'the server closed the connection');
      changes.close();
      client.close();
    },
  };

  async function unpause(id: SandboxId, container: string, call: CallOptions = {}): Promise<void> {
    await client.json('POST', `/containers/${container}/unpause`, {
      action: `thaw sandbox "${id}"`,
      ...call,
    });
  }
}
