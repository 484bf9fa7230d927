import { randomUUID } from 'node:crypto';
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Egress } from '../../egress/egress.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import type { CallScope, Observation } from '../backend.ts';
import { requireSandboxId, requireWanted } from '../support/check.ts';
import { startMain } from '../support/start-main.ts';
import { gate } from './gate.ts';
import { newUsage, type Machine } from './machine.ts';
import { memoryEgress } from './memory-egress.ts';
import { memoryGuest } from './memory-guest.ts';
import { memoryPorts } from './memory-ports.ts';
import type { Incarnation, MemorySandbox, MemorySandboxes } from './memory-sandbox.ts';
import type { MemoryVolumes } from './memory-volumes.ts';
import type { Program } from './program.ts';

/** The sandboxes of one backend: how one begins, is found, and ends. */
export interface OpenMemorySandboxes extends MemorySandboxes {
  /** Rejects `failed_precondition` unless it runs. */
  ready(id: SandboxId, options?: CallScope): { sandbox: MemorySandbox; running: Incarnation };
  /** Ends the incarnation, if there is one, and reports nothing. */
  halt(sandbox: MemorySandbox, why: string): void;
  setFrozen(id: SandboxId, frozen: boolean, options?: CallScope): MemorySandbox;
}

export interface MemorySandboxesOptions {
  all: Map<SandboxId, MemorySandbox>;
  programs: ReadonlyMap<string, Program>;
  volumes: MemoryVolumes;
  changes: Broadcast<Observation>;
  egress: Egress | undefined;
}

export function memorySandboxes({
  all,
  programs,
  volumes,
  changes,
  egress,
}: MemorySandboxesOptions): OpenMemorySandboxes {
  function get(id: SandboxId, options?: CallScope): MemorySandbox {
    checkCall(id, options);
    const sandbox = all.get(id);
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

  const fit: OpenMemorySandboxes['fit'] = ({ spec, limits }, tree) => {
    tree.limitBytes = limits.diskBytes;
    tree.readOnly = spec.readOnlyRoot;
    return tree;
  };

  const make: OpenMemorySandboxes['make'] = (id, spec, tree) => {
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
    all.set(id, sandbox);
    return sandbox;
  };

  const start: OpenMemorySandboxes['start'] = async (sandbox, given = sandbox.tree) => {
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

  function setFrozen(id: SandboxId, frozen: boolean, options?: CallScope): MemorySandbox {
    const { sandbox, running } = ready(id, options);
    if (running.machine.gate.closed === frozen) return sandbox;
    if (frozen) running.machine.gate.close();
    else running.machine.gate.open();
    see(sandbox, { phase: 'ready', runtime: 'memory', ...(frozen && { frozen }) });
    return sandbox;
  }

  return { all, get, ready, fit, make, start, see, halt, setFrozen };
}

export const absent = (id: SandboxId): Observation => ({ id, phase: 'absent', incarnation: 0 });

/** Rejects an id that is none, and a call whose caller gave up. */
export function checkCall(id: SandboxId, { signal }: CallScope = {}): void {
  requireWanted(signal);
  requireSandboxId(id);
}
