/**
 * The sandboxes and snapshots of one build. All are labelled with it, so that what a killed server left is
 * found.
 */
import {
  CreateSandboxSchema,
  type NetworkPolicy,
  type Sandbox,
  type Snapshot,
  type SnapshotId,
} from '@cay/sdk/protocol';
import type { Guest } from '../../../guest/guest.ts';
import type { Control, EnteredSandbox } from '../../control.ts';
import type { Principal } from '../../tenants/principal.ts';
import type { Build } from './build.ts';
import type { Surroundings } from './run-in.ts';
import type { Origin } from './step.ts';

export const OF_BUILD = 'cay/build';
/** On snapshots that are kept for later builds alone. */
const OF_STEP = 'cay/build-step';

export interface BuildSandboxesOptions {
  control: Pick<Control, 'create' | 'remove' | 'enter' | 'snapshot' | 'policy'>;
  principal: Principal;
  build: Build;
  signal: AbortSignal;
  timeoutMs: number;
  network?: NetworkPolicy | undefined;
}

export interface Entered {
  guest: Guest;
  row: EnteredSandbox;
}

export interface BuildSandboxes {
  make(origin: Origin, options?: { surroundings?: Surroundings; cmd?: string[] }): Promise<Sandbox>;
  enter(sandbox: Sandbox): Promise<Entered>;
  snapshot(sandbox: Sandbox, isStep: boolean): Promise<Snapshot>;
  /** Snapshots that were taken to go on from, and are not kept for later builds. */
  readonly passing: ReadonlySet<SnapshotId>;
  remove(sandbox: Sandbox): Promise<void>;
  /** Removes all that are left. */
  removeAll(): Promise<void>;
}

export function buildSandboxes(options: BuildSandboxesOptions): BuildSandboxes {
  const { control, principal, build, signal, timeoutMs, network } = options;
  const made = new Set<string>();
  const passing = new Set<SnapshotId>();
  let count = 0;
  const labels = { [OF_BUILD]: build.id };
  return {
    async make(origin, { surroundings, cmd } = {}) {
      signal.throwIfAborted();
      const name = count++ === 0 ? `build-${build.id}` : `build-${build.id}-${count}`;
      made.add(name);
      const request = CreateSandboxSchema.parse({
        name,
        ...('snapshot' in origin ? { snapshot: origin.snapshot } : { template: origin.template }),
        memory: false,
        ...surroundings,
        ...(cmd && { cmd }),
        ...(network !== undefined && { network }),
        limits: build.limits,
        labels,
        // Longer than the build: it removes the sandbox if the server does not come back.
        timeoutMs: Math.min(timeoutMs + 60_000, control.policy.maxima.timeoutMs ?? Number.POSITIVE_INFINITY),
        onTimeout: 'destroy',
      });
      return (
        await control.create(principal, request, {
          exactly: surroundings !== undefined,
          // The start command of the template that it is made from would interfere.
          withoutCommand: cmd === undefined,
        })
      ).sandbox;
    },
    enter: ({ id }) => control.enter(principal, id),
    passing,
    async snapshot({ id }, isStep) {
      const taken = await control.snapshot(principal, id, {
        labels: { ...labels, ...(isStep && { [OF_STEP]: 'true' }) },
      });
      if (!isStep) passing.add(taken.id);
      return taken;
    },
    async remove({ id, name }) {
      await control.remove(principal, id);
      if (name !== null) made.delete(name);
    },
    async removeAll() {
      for (const name of made) await control.remove(principal, name);
      made.clear();
    },
  };
}
