/**
 * Putting a sandbox back to a snapshot: another container is made of the snapshot's image and started beside
 * the old one, which is frozen meanwhile. Then it takes its place. Until then any failure takes the new one
 * away and lets the old one go on; a server that is killed leaves both, and the next one sees by their names
 * how far it had come.
 */
import { CayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Observation } from '../backend.ts';
import type { CallScope } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { LABELS } from './container-config.ts';
import { observationOf, type ContainerInspect } from './container-state.ts';
import type { ContainerName } from './container-name.ts';
import type { DockerContext } from './docker-context.ts';
import type { GuestConnection } from './guest-connections.ts';
import type { SnapshotImages } from './snapshot-images.ts';
import { readSpecLabel } from './spec-label.ts';
import type { ContainerStarter } from './start-container.ts';
import { takePlace } from './take-place.ts';

export const ROLLBACK_FAULTS = [
  'docker.rollback.created',
  'docker.rollback.frozen',
  'docker.rollback.started',
  'docker.replace.decided',
  'docker.replace.named',
] as const;

export async function rollbackContainer(
  context: DockerContext & { starter: ContainerStarter; snapshots: SnapshotImages },
  id: SandboxId,
  snapshot: SnapshotId,
  scope: CallScope,
): Promise<Observation> {
  const { box, client, containers, guests, snapshots, starter } = context;
  const { signal } = scope;
  requireWanted(signal);
  const old = await containers.find(id, scope);
  if (!old) throw new CayError('not_found', `Cannot roll sandbox "${id}" back: it does not exist`);
  const { image } = await snapshots.require(snapshot, scope);
  const { phase } = observationOf(old.name, old.inspect);
  if (phase === 'starting')
    throw new CayError('failed_precondition', `Cannot roll sandbox "${id}" back: it is ${phase}`);
  const spec = readSpecLabel(id, old.inspect.Config.Labels?.[LABELS.spec], box);
  const isRunning = phase === 'ready';
  const toFreeze = isRunning && !old.inspect.State.Paused;
  const name: ContainerName = { id, incarnation: old.name.incarnation + 1 };

  return containers.replacing(id, async () => {
    let container: string | undefined;
    let connection: GuestConnection | undefined;
    let isFrozen = false;
    const setFrozen = async (verb: 'pause' | 'unpause') => {
      const action = `${verb} sandbox "${id}"`;
      await client.json('POST', `/containers/${old.container}/${verb}`, { action, allow: [409] });
    };
    try {
      const limits = limitsOf(old.inspect.HostConfig);
      const origin = { image, parent: snapshot, limits };
      container = await starter.make({ ...name, mark: 'next' }, spec, origin, scope);
      await faultPoint('docker.rollback.created');
      if (toFreeze) {
        await setFrozen('pause');
        isFrozen = true;
      }
      await faultPoint('docker.rollback.frozen');
      if (isRunning) connection = await starter.startBeside(id, spec, container, scope);
      await faultPoint('docker.rollback.started');
      requireWanted(signal);
      const after: ContainerName = isRunning ? name : { ...name, mark: 'stopping' };
      await takePlace(containers, old, { container, name: { ...name, mark: 'next' } }, after);
      if (connection) guests.replace(id, connection, 'it was rolled back');
      else guests.hangUp(id, 'it was rolled back');
    } catch (error) {
      connection?.link.close('the rollback failed');
      if (isFrozen) await setFrozen('unpause').catch(() => {});
      if (container !== undefined) await containers.remove(id, container).catch(() => {});
      throw error;
    }
    const found = await containers.look(id, container);
    const observed = found && observationOf(isRunning ? name : { ...name, mark: 'stopping' }, found.inspect);
    return observed ?? { id, phase: 'absent', incarnation: 0 };
  });
}

/** What a resize may have changed. */
function limitsOf(config: ContainerInspect['HostConfig']): object {
  const has: Record<string, unknown> = { ...config };
  const names = ['NanoCpus', 'Memory', 'MemorySwap', 'PidsLimit', 'Ulimits'];
  return Object.fromEntries(names.flatMap((name) => (has[name] == null ? [] : [[name, has[name]]])));
}
