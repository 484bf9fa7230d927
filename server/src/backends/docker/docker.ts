/**
 * The docker backend: a sandbox is a container of any image, with our guest as its first process.
 *
 * All state is in Docker: labels say which sandbox a container is and from what spec it was made, its name
 * says which incarnation it is and whether it was asked to start or stop (`container-name.ts`). A new server
 * finds everything by label.
 *
 * The guest is reached through `docker exec` (`guest-connections.ts`). There is no network.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Egress } from '../../egress/egress.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { Semaphore } from '../../lib/semaphore.ts';
import { allowsRuntime, preferredRuntime } from '../../policy/allow-runtime.ts';
import { DEFAULT_POLICY, type Policy } from '../../policy/policy.ts';
import {
  abilityOf,
  type Backend,
  type CallScope,
  type Freezing,
  type Observation,
  type Resizing,
  type Snapshotting,
  type Sweeping,
} from '../backend.ts';
import type { Probeable } from '../probing/probed-backend.ts';
import { requireSandboxId, requireSpec } from '../support/check.ts';
import { observationFeed } from '../support/observation-feed.ts';
import { containerFreezing } from './container-freezing.ts';
import { containerSpace } from './container-space.ts';
import { absent, observationOf } from './container-state.ts';
import { dockerContainers } from './containers.ts';
import { dockerClient } from './docker-client.ts';
import { checkDockerSpec, readyContainer, type DockerContext } from './docker-context.ts';
import { dockerVolumes } from './docker-volumes.ts';
import { dockerSnapshots } from './docker-snapshots.ts';
import { sweeper } from './sweep.ts';
import { snapshotImages } from './snapshot-images.ts';
import { snapshotReaders } from './snapshot-readers.ts';
import { engineAddress, lookAtEngine, type Engine } from './engine.ts';
import { ensureContainer } from './ensure-container.ts';
import { feedEvents } from './event-feed.ts';
import { guestConnections } from './guest-connections.ts';
import { dockerImages } from './images.ts';
import { resizeContainer, statsOfContainer } from './measure-container.ts';
import { ANSWER_MS, containerStarter } from './start-container.ts';
import { stopContainer } from './stop-container.ts';

export interface DockerOptions {
  /** The guest's program on this machine. */
  guestPath: string;
  /** `unix:///path` or `tcp://name:port`. Default: `DOCKER_HOST`, or `/var/run/docker.sock`. */
  host?: string;
  /** Tells the sandboxes of several servers that share an engine apart. Default `default`. */
  installation?: string;
  /** The image of the template `base`. */
  baseImage?: string;
  /** Which runtimes and images may be asked for. */
  policy?: Policy;
  /** Sandboxes started at the same time. Default 8; more makes each slower. */
  startsAtOnce?: number;
  /** Seals the environment of sandboxes in labels. Absent: it is in the clear. */
  box?: SealedBox | undefined;
  /** What programs inside reach the network through. Absent: they reach nothing. */
  egress?: Egress | undefined;
}

export type DockerBackend = Backend & Resizing & Freezing & Snapshotting & Sweeping & Probeable;

export function dockerBackend(options: DockerOptions): DockerBackend {
  const installation = requireInstallation(options.installation ?? 'default');
  const client = dockerClient(options.host ?? engineAddress());
  const containers = dockerContainers(client, installation);
  const { guestPath, baseImage = 'debian:stable-slim', policy = DEFAULT_POLICY } = options;
  const images = dockerImages(client, { installation, guestPath, baseImage, policy });
  const guests = guestConnections(client, containers, options.egress);
  const starts = new Semaphore(options.startsAtOnce ?? 8);
  const changes = observationFeed();
  const closing = new AbortController();
  let known: Promise<Engine> | undefined;
  let feeding = false;

  function engine(): Promise<Engine> {
    return (known ??= lookAtEngine(client, { installation }).catch((error: unknown) => {
      known = undefined;
      throw error;
    }));
  }

  const volumes = dockerVolumes({ client, images, installation });
  const context: DockerContext = {
    installation,
    client,
    containers,
    images,
    policy,
    guests,
    volumes,
    engine,
    box: options.box,
  };
  const starter = containerStarter(context);
  const snapshots = snapshotImages(context);
  const readers = snapshotReaders(context, snapshots);

  async function look(id: SandboxId, scope: CallScope = {}): Promise<Observation> {
    const found = await containers.find(id, scope);
    if (!found?.inspect.State.Running) guests.hangUp(id, 'it is not running');
    return found ? observationOf(found.name, found.inspect) : absent(id);
  }

  const space = containerSpace(context);
  const travel = dockerSnapshots({
    ...context,
    starter,
    snapshots,
    readers,
    changes,
    ensure: (id, spec, scope) => backend.ensure(id, spec, scope),
  });

  const backend: DockerBackend = {
    name: 'docker',

    ...travel,
    ...containerFreezing(context),
    sweep: sweeper(context, readers),

    async capabilities(scope) {
      const { runtimes, abilities, notes } = await engine();
      const allowed = runtimes.filter((name) => allowsRuntime(policy, name));
      return { backend: 'docker', runtimes: allowed, templates: await images.list(scope), abilities, notes };
    },

    ability(name) {
      return abilityOf({ resize: this, freeze: this, snapshots: this, space, sweep: this, volumes }, name);
    },

    async defaultRuntime() {
      const { defaultRuntime, runtimes } = await engine();
      return preferredRuntime(policy, defaultRuntime, runtimes);
    },

    wired: async () => (await engine()).abilities,
    async fingerprint(runtime) {
      const guest = createHash('sha256').update(await readFile(guestPath));
      return guest
        .update(`${(await engine()).identity} ${runtime}`)
        .digest('hex')
        .slice(0, 32);
    },

    async validate(spec, scope) {
      await checkDockerSpec(context, spec);
      await images.check(spec.template, scope);
      await volumes.requireAll(spec, scope);
    },

    async ensure(id, spec, scope = {}) {
      requireSandboxId(id);
      requireSpec(spec);
      return changes.changing(id, () =>
        ensureContainer({ ...context, starter, starts, look }, id, spec, scope),
      );
    },

    async observe(id, scope) {
      requireSandboxId(id);
      return look(id, scope);
    },

    list: (scope) => containers.observeAll(scope),

    watch(scope = {}) {
      const iterator = changes.subscribe({ signal: scope.signal });
      if (!feeding) {
        feeding = true;
        const feed = feedEvents(client, {
          installation,
          signal: closing.signal,
          observe: look,
          observeAll: () => containers.observeAll(),
          known: changes.known,
          learn: changes.learn,
          report: changes.see,
        });
        // The feed reconnects by itself, so its failures are ignored.
        inBackground(feed, ignoreFailure);
      }
      return iterator;
    },

    async connect(id, scope = {}) {
      requireSandboxId(id);
      const now = guests.get(id);
      if (now?.link.current) return now.guest;
      const found = await readyContainer(context, id, 'connect', scope);
      if (found.inspect.State.Paused)
        throw new CayError('failed_precondition', `Cannot connect: sandbox "${id}" is frozen`);
      const { link, guest } = guests.open(found);
      await link.ready({ signal: scope.signal, timeoutMs: ANSWER_MS });
      return guest;
    },

    async stats(id, scope) {
      requireSandboxId(id);
      return statsOfContainer(context, id, scope);
    },

    async stop(id, stopOptions = {}) {
      requireSandboxId(id);
      return changes.changing(id, () => stopContainer(context, id, stopOptions));
    },

    async remove(id, scope) {
      requireSandboxId(id);
      await changes.changing(id, async () => {
        guests.hangUp(id, 'it was removed');
        await containers.removeAll(id, scope);
        return absent(id);
      });
    },

    async resize(id, limits, scope) {
      requireSandboxId(id);
      await resizeContainer(context, id, limits, scope);
    },

    async close() {
      closing.abort();
      await readers.close();
      guests.close();
      changes.close();
      client.close();
    },
  };
  return backend;
}

function requireInstallation(installation: string): string {
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(installation) || installation.length > 64) {
    throw new CayError(
      'invalid_argument',
      `Installation "${installation}" must be lower-case letters, digits and single dashes`,
    );
  }
  return installation;
}
