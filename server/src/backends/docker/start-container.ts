/** Starting the container of a sandbox that was absent, stopped, failed or left half-started. */
import { CayError, isCayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { requireRuntime } from '../../policy/allow-runtime.ts';
import type { CallScope, Observation } from '../backend.ts';
import { hashOf } from '../support/spec-hash.ts';
import { startMain } from '../support/start-main.ts';
import { requireAccountFiles } from './account-files.ts';
import { containerConfig, resources } from './container-config.ts';
import { observationOf } from './container-state.ts';
import type { Found } from './containers.ts';
import { checkDockerSpec, type DockerContext } from './docker-context.ts';

/** How long a started guest has to answer. */
export const ANSWER_MS = 30_000;

export interface ContainerStarter {
  /** `before` is the container that exists. When it rejects, what it began is undone. */
  start(id: SandboxId, spec: SandboxSpec, before: Found | undefined, scope: CallScope): Promise<Observation>;
}

export function containerStarter(context: DockerContext): ContainerStarter {
  const { installation, client, containers, images, policy, guests, engine } = context;
  /** The lowest limit of open files that the engine may not set. */
  let openFilesRefused = Number.POSITIVE_INFINITY;

  /** Creates and starts the container of a sandbox that was absent. */
  async function create(id: SandboxId, spec: SandboxSpec, scope: CallScope): Promise<void> {
    const [known, runtime] = [await engine(), await checkDockerSpec(context, spec)];
    const image = await images.prepare(spec.template, scope);

    async function attempt(setOpenFiles: boolean): Promise<void> {
      const config = containerConfig(id, spec, {
        installation,
        specHash: hashOf(spec),
        image: image.id,
        runtime,
        machine: known.machine,
        setOpenFiles,
      });
      const container = await containers.create({ id, incarnation: 1, mark: 'starting' }, config, scope);
      try {
        await containers.start(id, container, scope);
      } catch (error) {
        await containers.remove(id, container);
        throw error;
      }
    }

    const setOpenFiles = spec.limits.openFiles < openFilesRefused;
    try {
      await attempt(setOpenFiles);
    } catch (error) {
      if (!setOpenFiles || !isRefusedStart(error)) throw error;
      // An engine that may not raise the limit of open files says so only in words of its runtime. Whether
      // that was the reason shows without the limit: the container then gets the engine's own, lower one.
      await attempt(false).catch(() => {
        throw error;
      });
      openFilesRefused = Math.min(openFilesRefused, spec.limits.openFiles);
    }
  }

  /** Waits for the guest of a started container, and makes the working directory that the image lacks. */
  async function finish(id: SandboxId, spec: SandboxSpec, scope: CallScope): Promise<Observation> {
    const { signal } = scope;
    const found = await containers.find(id, scope);
    if (!found) throw new CayError('conflict', `Cannot start sandbox "${id}": its container was removed`);
    const { link, guest } = guests.open(found, { justStarted: true });
    await link.ready({ signal, timeoutMs: ANSWER_MS });
    const root = guest.files('root');
    // Docker has made the working directory of a read-only root, where the guest could not.
    if (!spec.readOnlyRoot && (await root.mkdir(spec.workdir, { signal })))
      await root.chown(spec.workdir, spec.user, { signal });
    await startMain(guest, spec);
    const name = { id, incarnation: found.name.incarnation };
    await containers.rename(found, name, scope);
    return observationOf(name, found.inspect);
  }

  /** A container that was made with what the operator does not allow any more does not run again. */
  function requireStartable({ inspect }: Found, { template }: SandboxSpec): void {
    const { Runtime: runtime } = inspect.HostConfig;
    if (runtime !== undefined) requireRuntime(policy, runtime, [runtime]);
    images.requireAllowed(template);
  }

  /** Gives a container that does not run the limits of today. */
  async function relimit(
    id: SandboxId,
    { container, inspect }: Found,
    { limits }: SandboxSpec,
    { signal }: CallScope,
  ): Promise<void> {
    const { cpus, memoryBytes, pids } = limits;
    const wanted = Object.entries(resources({ cpus, memoryBytes, pids }, (await engine()).machine));
    const has: Record<string, unknown> = { ...inspect.HostConfig };
    // The engine reports an absent limit of processes as nothing at all.
    if (wanted.every(([name, value]) => (has[name] ?? -1) === value)) return;
    await client.json('POST', `/containers/${container}/update`, {
      action: `limit sandbox "${id}"`,
      body: Object.fromEntries(wanted),
      signal,
    });
  }

  async function startAgain(
    id: SandboxId,
    spec: SandboxSpec,
    before: Found,
    scope: CallScope,
  ): Promise<void> {
    requireStartable(before, spec);
    await requireAccountFiles(client, before.container, {
      action: `start sandbox "${id}"`,
      signal: scope.signal,
    });
    await relimit(id, before, spec, scope);
    const fresh = before.inspect.State.Status === 'created';
    const incarnation = before.name.incarnation + (fresh ? 0 : 1);
    await containers.rename(before, { id, incarnation, mark: 'starting' }, scope);
    await containers.start(id, before.container, scope);
  }

  return {
    async start(id, spec, before, scope) {
      try {
        if (!before) await create(id, spec, scope);
        else if (!before.inspect.State.Running) await startAgain(id, spec, before, scope);
        return await finish(id, spec, scope);
      } catch (error) {
        guests.hangUp(id, 'it could not be started');
        const found = await containers.find(id).catch(() => undefined);
        if (found && (!before || before.inspect.State.Status === 'created'))
          await containers.remove(id, found.container);
        else if (found) {
          await containers.rename(found, { ...found.name, mark: 'stopping' });
          await containers.kill(found);
        }
        throw error;
      }
    },
  };
}

/** What the runtime refuses is 400 or 500, by the version of the engine; 404, 409 and the like are others. */
function isRefusedStart(error: unknown): boolean {
  return isCayError(error) && (error.details['status'] === 400 || error.details['status'] === 500);
}
