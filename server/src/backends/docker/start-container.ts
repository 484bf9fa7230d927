/** Starting the container of a sandbox that was absent, stopped, failed or left half-started. */
import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';
import { hashOf } from '../support/spec-hash.ts';
import { startMain } from '../support/start-main.ts';
import { requireAccountFiles } from './account-files.ts';
import { containerConfig, LABELS } from './container-config.ts';
import type { ContainerName } from './container-name.ts';
import { observationOf } from './container-state.ts';
import type { Found } from './containers.ts';
import { checkDockerSpec, type DockerContext } from './docker-context.ts';
import type { GuestConnection } from './guest-connections.ts';
import { openFilesLimit } from './open-files-limit.ts';
import { specLabel } from './spec-label.ts';
import { relimit, requireStartable } from './start-again.ts';
import { takePlace } from './take-place.ts';

/** How long a started guest has to answer. */
export const ANSWER_MS = 30_000;

/** What a container is made of: the image of a template, or of a snapshot. */
export interface ContainerOrigin {
  image: string;
  parent?: SnapshotId | undefined;
  /** Limits that were changed since the spec was written, in the engine's words. */
  limits?: object;
  /** False where the engine is known not to raise the limit of open files. */
  setOpenFiles?: boolean;
}

export interface ContainerStarter {
  /**
   * `before` is the container that exists. When it rejects, what it began is undone. Without `before` it is
   * made of `origin`, or of the spec's template.
   */
  start(
    id: SandboxId,
    spec: SandboxSpec,
    before: Found | undefined,
    scope: CallScope,
    origin?: ContainerOrigin,
  ): Promise<Observation>;
  /** Makes a container that does not run. Resolves with the engine's id of it. */
  make(name: ContainerName, spec: SandboxSpec, origin: ContainerOrigin, scope: CallScope): Promise<string>;
  /** Starts a container that is not the sandbox's yet, and waits for its guest and the spec's command. */
  startBeside(
    id: SandboxId,
    spec: SandboxSpec,
    container: string,
    scope: CallScope,
  ): Promise<GuestConnection>;
}

export function containerStarter(context: DockerContext): ContainerStarter {
  const { installation, client, containers, images, guests, engine, box } = context;
  const openFiles = openFilesLimit();

  async function make(
    name: ContainerName,
    spec: SandboxSpec,
    { image, parent, limits, setOpenFiles = openFiles.isSet(spec) }: ContainerOrigin,
    scope: CallScope,
  ): Promise<string> {
    const [known, runtime] = [await engine(), await checkDockerSpec(context, spec)];
    const config = containerConfig(name.id, spec, {
      installation,
      specHash: hashOf(spec),
      specText: specLabel(name.id, spec, box),
      image,
      parent,
      runtime,
      machine: known.machine,
      seccomp: known.seccomp,
      setOpenFiles,
    });
    return containers.create(
      name,
      { ...config, HostConfig: { ...(config as { HostConfig: object }).HostConfig, ...limits } },
      scope,
    );
  }

  /** Creates and starts the container of a sandbox that was absent. */
  async function create(
    id: SandboxId,
    spec: SandboxSpec,
    scope: CallScope,
    given: ContainerOrigin | undefined,
  ): Promise<void> {
    const origin = given ?? { image: (await images.prepare(spec.template, scope)).id };
    await openFiles.attempt(spec, async (setOpenFiles) => {
      const name = { id, incarnation: 1, mark: 'starting' as const };
      const container = await make(name, spec, { ...origin, setOpenFiles }, scope);
      try {
        await startChecked(id, container, scope, { isChecked: given === undefined });
      } catch (error) {
        await containers.remove(id, container);
        throw error;
      }
    });
  }

  /** The engine hangs on account files that are pipes. Nothing of a sandbox has run on a template's image. */
  async function startChecked(
    id: SandboxId,
    container: string,
    scope: CallScope,
    { isChecked = false } = {},
  ): Promise<void> {
    const { signal } = scope;
    if (!isChecked) await requireAccountFiles(client, container, { action: `start sandbox "${id}"`, signal });
    await containers.start(id, container, scope);
  }

  /** Waits for the guest, makes the working directory that the image lacks, and starts the spec's command. */
  async function fit(connection: GuestConnection, spec: SandboxSpec, { signal }: CallScope): Promise<void> {
    await connection.link.ready({ signal, timeoutMs: ANSWER_MS });
    const root = connection.guest.files('root');
    // Docker has made the working directory of a read-only root, where the guest could not.
    if (!spec.readOnlyRoot && (await root.mkdir(spec.workdir, { signal })))
      await root.chown(spec.workdir, spec.user, { signal });
    await startMain(connection.guest, spec);
  }

  async function finish(id: SandboxId, spec: SandboxSpec, scope: CallScope): Promise<Observation> {
    const found = await containers.find(id, scope);
    if (!found) throw new CayError('conflict', `Cannot start sandbox "${id}": its container was removed`);
    await fit(guests.open(found, { justStarted: true }), spec, scope);
    const name = { id, incarnation: found.name.incarnation };
    await containers.rename(found, name, scope);
    return observationOf(name, found.inspect);
  }

  async function startAgain(
    id: SandboxId,
    spec: SandboxSpec,
    before: Found,
    scope: CallScope,
  ): Promise<void> {
    requireStartable(context, before, spec);
    await relimit(context, id, before, spec, scope);
    const fresh = isFresh(before);
    const name = { id, incarnation: before.name.incarnation + (fresh ? 0 : 1), mark: 'starting' as const };
    await containers.rename(before, name, scope);
    const found = { ...before, name };
    if (!fresh) return startChecked(id, before.container, scope);
    await openFiles.attempt(spec, async (setOpenFiles) => {
      // A container that never ran has only the files of its image, so it can be made again.
      const container = setOpenFiles ? found.container : await remake(found, spec, scope);
      await startChecked(id, container, scope);
    });
  }

  /** The same container without a limit of open files. */
  async function remake(found: Found, spec: SandboxSpec, scope: CallScope): Promise<string> {
    const { name, inspect } = found;
    const { Ulimits } = inspect.HostConfig;
    if (!Ulimits?.length) return found.container;
    const parent = (inspect.Config.Labels?.[LABELS.parent] || undefined) as SnapshotId | undefined;
    const origin = { image: inspect.Image, parent, setOpenFiles: false };
    return containers.replacing(name.id, async () => {
      const next = { id: name.id, incarnation: name.incarnation, mark: 'next' as const };
      const container = await make(next, spec, origin, scope);
      await takePlace(containers, found, { container, name: next }, name);
      return container;
    });
  }

  return {
    make,

    async startBeside(id, spec, container, scope) {
      await startChecked(id, container, scope);
      const found = await containers.look(id, container, scope);
      if (!found) throw new CayError('conflict', `Cannot start sandbox "${id}": its container was removed`);
      const connection = guests.beside(found);
      try {
        await fit(connection, spec, scope);
        return connection;
      } catch (error) {
        connection.link.close('it could not be started');
        throw error;
      }
    },

    async start(id, spec, before, scope, origin) {
      try {
        if (!before) await create(id, spec, scope, origin);
        else if (!before.inspect.State.Running) await startAgain(id, spec, before, scope);
        return await finish(id, spec, scope);
      } catch (error) {
        guests.hangUp(id, 'it could not be started');
        const found = await containers.find(id).catch(() => undefined);
        const wasMade = !before || (isFresh(before) && before.name.mark === 'starting');
        if (found && wasMade) await containers.remove(id, found.container);
        else if (found) {
          await containers.rename(found, { ...found.name, mark: 'stopping' });
          await containers.kill(found);
        }
        throw error;
      }
    },
  };
}

const isFresh = ({ inspect }: Found) => inspect.State.Status === 'created';
