/**
 * The memory backend: sandboxes in this process, for tests and for the tests of those who use the SDK.
 *
 * Lifecycle, files, ports and the ends of commands are as with every other backend, and the same suite checks
 * it. What runs is not: programs are functions (`program.ts`), a few are built in, and nothing is isolated
 * from anything.
 */
import { randomUUID } from 'node:crypto';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Egress } from '../../egress/egress.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import { requireRuntime } from '../../policy/allow-runtime.ts';
import { DEFAULT_POLICY, type Policy } from '../../policy/policy.ts';
import {
  abilityOf,
  type Backend,
  type CallScope,
  type FailureReason,
  type Freezing,
  type Observation,
  type Resizing,
  type Snapshotting,
  type Suspending,
} from '../backend.ts';
import { requireLimits, requireSandboxId, requireSpec, requireWanted, sameSpec } from '../support/check.ts';
import { startMain } from '../support/start-main.ts';
import { baseTree } from './base-tree.ts';
import { memoryCapabilities } from './capabilities.ts';
import { gate } from './gate.ts';
import { newUsage, type Machine } from './machine.ts';
import { memoryEgress } from './memory-egress.ts';
import { memoryGuest } from './memory-guest.ts';
import { memoryPorts } from './memory-ports.ts';
import type { Incarnation, MemorySandbox, MemorySandboxes } from './memory-sandbox.ts';
import { memorySnapshots } from './memory-snapshots.ts';
import { memoryVolumes } from './memory-volumes.ts';
import type { Program } from './program.ts';
import { BUILT_IN } from './programs/built-in.ts';

export interface MemoryOptions {
  /** Programs by name, in addition to the built-in ones or in their place. */
  commands?: Record<string, Program>;
  /** Files that every sandbox starts with, by absolute path, owned by root. */
  files?: Record<string, string | Uint8Array>;
  /** What may be asked for. */
  policy?: Policy;
  /** What programs reach the network through. Absent: they reach nothing. */
  egress?: Egress | undefined;
}

export interface MemoryBackend extends Backend, Resizing, Freezing, Suspending, Snapshotting {
  /** Ends a sandbox as a fault would, for tests of what happens then. */
  crash(id: SandboxId, reason?: FailureReason): void;
}

export function memoryBackend({
  commands = {},
  files = {},
  policy = DEFAULT_POLICY,
  egress,
}: MemoryOptions = {}): MemoryBackend {
  const programs = new Map(Object.entries({ ...BUILT_IN, ...commands }));
  const sandboxes = new Map<SandboxId, MemorySandbox>();
  const changes = new Broadcast<Observation>();
  const volumes = memoryVolumes(sandboxes, policy);

  function get(id: SandboxId, options?: CallScope): MemorySandbox {
    check(id, options);
    const sandbox = sandboxes.get(id);
    if (!sandbox)
      throw new CayError('not_found', `Cannot find sandbox "${id}"`, { details: { what: 'sandbox' } });
    return sandbox;
  }

  function ready(id: SandboxId, options?: CallScope): { sandbox: MemorySandbox; running: Incarnation } {
    const sandbox = get(id, options);
    const { running, seen } = sandbox;
    if (!running)
      throw new CayError('failed_precondition', `Cannot use sandbox "${id}": it is ${seen.phase}`);
    return { sandbox, running };
  }

  function see(
    sandbox: MemorySandbox,
    change: Pick<Observation, 'phase'> & Partial<Observation>,
  ): Observation {
    const { id, incarnation } = sandbox.seen;
    sandbox.seen = { id, incarnation, uid: sandbox.uid, ...change };
    changes.send(sandbox.seen);
    return sandbox.seen;
  }

  const fit: MemorySandboxes['fit'] = ({ spec, limits }, tree) => {
    tree.limitBytes = limits.diskBytes;
    tree.readOnly = spec.readOnlyRoot;
    return tree;
  };

  const make: MemorySandboxes['make'] = (id, spec, tree) => {
    const limits = { ...spec.limits };
    const sandbox: MemorySandbox = {
      spec,
      tree: fit({ spec, limits }, tree),
      limits,
      uid: randomUUID(),
      seen: absent(id),
      running: undefined,
      base: undefined,
    };
    sandboxes.set(id, sandbox);
    return sandbox;
  };

  const start: MemorySandboxes['start'] = async (sandbox, given = sandbox.tree) => {
    const { limits, seen, spec } = sandbox;
    const tree = fit(sandbox, given);
    if (sandbox.running?.machine.tree === tree) volumes.unmount(tree);
    volumes.mount(tree, spec);
    const end = new AbortController();
    const way = gate();
    const ports = memoryPorts(end.signal, way);
    const machine: Machine = {
      tree,
      programs,
      limits,
      usage: newUsage(),
      gone: end.signal,
      ports,
      dial: memoryEgress(egress, seen.id, end.signal),
      gate: way,
    };
    const running: Incarnation = { machine, end, guest: memoryGuest(machine) };
    try {
      await startMain(running.guest, spec);
    } catch (error) {
      volumes.unmount(tree);
      finish(running, seen.id, 'it could not be started');
      throw error;
    }
    halt(sandbox, 'it was rolled back');
    Object.assign(sandbox, { running, tree });
    return see(sandbox, { phase: 'ready', incarnation: seen.incarnation + 1, runtime: 'memory' });
  };

  function halt(sandbox: MemorySandbox, why: string): void {
    const { running, seen } = sandbox;
    sandbox.running = undefined;
    if (!running) return;
    finish(running, seen.id, why);
    if (running.machine.tree.mounts.size > 0) volumes.unmount(running.machine.tree);
  }

  /** Ends all that runs: commands first, so that they end as lost, and then every pending call. */
  function finish({ guest, end }: Incarnation, id: SandboxId, why: string): void {
    guest.shutDown({ kind: 'lost', reason: `The sandbox went away: ${why}` });
    end.abort(new CayError('unavailable', `Cannot reach sandbox "${id}": ${why}`));
  }

  function freeze(id: SandboxId, frozen: boolean, options?: CallScope): MemorySandbox {
    const { sandbox, running } = ready(id, options);
    if (running.machine.gate.closed === frozen) return sandbox;
    if (frozen) running.machine.gate.close();
    else running.machine.gate.open();
    see(sandbox, { phase: 'ready', runtime: 'memory', ...(frozen && { frozen }) });
    return sandbox;
  }

  const snapshotting = memorySnapshots({
    sandboxes: { all: sandboxes, get, fit, make, start, see },
    validate: (spec) => backend.validate(spec),
  });

  const space = { spaceOf: async (id: SandboxId) => ({ fileBytes: get(id).tree.usedBytes }) };

  const backend: MemoryBackend = {
    ...snapshotting,
    name: 'memory',

    async capabilities() {
      return memoryCapabilities();
    },

    ability(name) {
      return abilityOf({ resize: this, freeze: this, suspend: this, snapshots: this, space, volumes }, name);
    },

    async validate(spec) {
      requireSpec(spec);
      const { template, runtime = 'memory' } = spec;
      requireRuntime(policy, runtime, ['memory']);
      if (template !== 'base')
        throw new CayError(
          'not_found',
          `Cannot make the sandbox: template ${JSON.stringify(template)} is unknown`,
          {
            details: { what: 'template' },
          },
        );
      if (runtime !== 'memory')
        throw new CayError(
          'not_found',
          `Cannot make the sandbox: runtime ${JSON.stringify(runtime)} is unknown`,
          {
            details: { what: 'runtime' },
          },
        );
      volumes.validate(spec);
    },

    async ensure(id, spec, options) {
      check(id, options);
      await backend.validate(spec);
      const known = sandboxes.get(id);
      if (known && !sameSpec(known.spec, spec)) {
        throw new CayError(
          'already_exists',
          `Cannot make sandbox "${id}": it exists already, made from a different spec`,
        );
      }
      if (known?.running) return freeze(id, false).seen;
      if (known) {
        const { diskBytes } = known.limits;
        Object.assign(known.limits, spec.limits, { diskBytes });
        return start(known);
      }
      const sandbox = make(id, spec, baseTree(programs.keys(), files));
      try {
        return await start(sandbox);
      } catch (error) {
        sandboxes.delete(id);
        throw error;
      }
    },

    async observe(id, options) {
      check(id, options);
      return sandboxes.get(id)?.seen ?? absent(id);
    },

    async list() {
      return [...sandboxes.values()].map(({ seen }) => seen);
    },

    watch(options) {
      return changes.subscribe(options);
    },

    async connect(id, options) {
      return ready(id, options).running.guest;
    },

    async stats(id, options) {
      const { sandbox, running } = ready(id, options);
      const { usage } = running.machine;
      return {
        atMs: Date.now(),
        cpuUsageMs: usage.cpuMs,
        memoryBytes: usage.memoryBytes,
        memoryLimitBytes: sandbox.limits.memoryBytes,
        pids: usage.programs,
        diskBytes: sandbox.tree.usedBytes,
        diskLimitBytes: sandbox.limits.diskBytes,
        networkRxBytes: null,
        networkTxBytes: null,
        diskReadBytes: null,
        diskWriteBytes: null,
        oomKills: usage.oomKills,
      };
    },

    async stop(id, options) {
      const sandbox = get(id, options);
      if (sandbox.seen.phase === 'stopped' && !sandbox.seen.suspended) return sandbox.seen;
      halt(sandbox, 'it was stopped');
      return see(sandbox, { phase: 'stopped' });
    },

    async suspend(id, options) {
      const { seen } = get(id, options);
      if (seen.suspended) return seen;
      const { sandbox } = ready(id, options);
      halt(sandbox, 'it was suspended');
      return see(sandbox, { phase: 'stopped', suspended: true });
    },

    async remove(id, options) {
      check(id, options);
      const sandbox = sandboxes.get(id);
      if (!sandbox) return;
      halt(sandbox, 'it was removed');
      sandboxes.delete(id);
      changes.send(absent(id));
    },

    async resize(id, limits, options) {
      const { sandbox, running } = ready(id, options);
      requireLimits(limits);
      const { usage } = running.machine;
      const inUse = {
        memoryBytes: usage.memoryBytes,
        diskBytes: sandbox.tree.usedBytes,
        pids: usage.programs,
      };
      for (const [name, used] of Object.entries(inUse)) {
        const limit = limits[name as keyof typeof inUse];
        if (limit !== undefined && limit !== null && used > limit) {
          throw new CayError(
            'failed_precondition',
            `Cannot resize sandbox "${id}": ${used} of "${name}" are in use, more than ${limit}`,
          );
        }
      }
      // The machine holds the same object, so running programs see it too.
      Object.assign(sandbox.limits, limits);
      sandbox.tree.limitBytes = sandbox.limits.diskBytes;
    },

    async freeze(id, options) {
      freeze(id, true, options);
    },

    async thaw(id, options) {
      freeze(id, false, options);
    },

    crash(id, reason = 'crashed') {
      const { sandbox } = ready(id);
      halt(sandbox, 'it crashed');
      see(sandbox, { phase: 'failed', reason, message: `The sandbox ended by itself: ${reason}` });
    },

    async close() {
      for (const sandbox of sandboxes.values()) halt(sandbox, 'the backend was closed');
      sandboxes.clear();
      changes.close();
    },
  };
  return backend;
}

const absent = (id: SandboxId): Observation => ({ id, phase: 'absent', incarnation: 0 });

function check(id: SandboxId, { signal }: CallScope = {}): void {
  requireWanted(signal);
  requireSandboxId(id);
}
