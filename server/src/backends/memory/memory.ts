/**
 * The memory backend: sandboxes in this process, for tests and for the tests of those who use the SDK.
 *
 * Lifecycle, files, ports and the ends of commands are as with every other backend, and the same suite checks
 * it. What runs is not: programs are functions (`program.ts`), a few are built in, and nothing is isolated
 * from anything.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Egress } from '../../egress/egress.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import { requireRuntime } from '../../policy/allow-runtime.ts';
import { DEFAULT_POLICY, type Policy } from '../../policy/policy.ts';
import {
  abilityOf,
  type Backend,
  type FailureReason,
  type Freezing,
  type Observation,
  type Resizing,
  type Snapshotting,
  type Suspending,
} from '../backend.ts';
import { requireSpec, sameSpec } from '../support/check.ts';
import { baseTree } from './base-tree.ts';
import { memoryCapabilities } from './capabilities.ts';
import type { MemorySandbox } from './memory-sandbox.ts';
import { absent, checkCall, memorySandboxes } from './memory-sandboxes.ts';
import { memorySnapshots } from './memory-snapshots.ts';
import { memoryVolumes } from './memory-volumes.ts';
import type { Program } from './program.ts';
import { BUILT_IN } from './programs/built-in.ts';
import { resizeSandbox } from './resize-sandbox.ts';

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
  const all = new Map<SandboxId, MemorySandbox>();
  const changes = new Broadcast<Observation>();
  const volumes = memoryVolumes(all, policy);

  const sandboxes = memorySandboxes({ all, programs, volumes, changes, egress });
  const { get, halt, make, ready, see, setFrozen, start } = sandboxes;
  const snapshotting = memorySnapshots({ sandboxes, validate: (spec) => backend.validate(spec) });

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
      checkCall(id, options);
      await backend.validate(spec);
      const known = all.get(id);
      if (known && !sameSpec(known.spec, spec)) {
        throw new CayError(
          'already_exists',
          `Cannot make sandbox "${id}": it exists already, made from a different spec`,
        );
      }
      if (known?.running) return setFrozen(id, false).seen;
      if (known) {
        const { diskBytes } = known.limits;
        Object.assign(known.limits, spec.limits, { diskBytes });
        return start(known);
      }
      const sandbox = make(id, spec, baseTree(programs.keys(), files));
      try {
        return await start(sandbox);
      } catch (error) {
        all.delete(id);
        throw error;
      }
    },

    async observe(id, options) {
      checkCall(id, options);
      return all.get(id)?.seen ?? absent(id);
    },

    async list() {
      return [...all.values()].map(({ seen }) => seen);
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
      checkCall(id, options);
      const sandbox = all.get(id);
      if (!sandbox) return;
      halt(sandbox, 'it was removed');
      all.delete(id);
      changes.send(absent(id));
    },

    async resize(id, limits, options) {
      const { sandbox, running } = ready(id, options);
      resizeSandbox(sandbox, running, limits);
    },

    async freeze(id, options) {
      setFrozen(id, true, options);
    },

    async thaw(id, options) {
      setFrozen(id, false, options);
    },

    crash(id, reason = 'crashed') {
      const { sandbox } = ready(id);
      halt(sandbox, 'it crashed');
      see(sandbox, { phase: 'failed', reason, message: `The sandbox ended by itself: ${reason}` });
    },

    async close() {
      for (const sandbox of all.values()) halt(sandbox, 'the backend was closed');
      all.clear();
      changes.close();
    },
  };
  return backend;
}
