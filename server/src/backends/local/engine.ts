/**
 * What the verbs of the local backend share: the resources, the records, what runs, and what is kept ready.
 * Each verb is a function of its own that takes the engine.
 */
import { CayError, type Limits, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import type { HostResources } from '../../host/host-resources.ts';
import type { VolumeStore } from '../../host/volumes/volume.ts';
import type { Instance } from '../../host/instances/instance.ts';
import type { Policy } from '../../policy/policy.ts';
import type { Broadcast } from '../../lib/broadcast.ts';
import type { KeyedQueue } from '../../lib/keyed-queue.ts';
import { randomName } from '../../lib/random-name.ts';
import type { Semaphore } from '../../lib/semaphore.ts';
import type { Observation } from '../backend.ts';
import type { HeldNames } from './held-names.ts';
import type { Images } from './images.ts';
import type { Pool } from './pool.ts';
import type { LocalTemplates } from './image-templates.ts';
import { observationOf, type SandboxRecord, type SandboxRecords } from './sandbox-record.ts';
import type { SnapshotRecords } from './snapshot-record.ts';
import type { SpareTrees } from './spare-trees.ts';
import type { BackgroundCleanup } from './background-cleanup.ts';

export interface Engine {
  readonly resources: HostResources;
  readonly records: SandboxRecords;
  readonly snapshots: SnapshotRecords;
  readonly images: Images;
  /** Absent in an engine that only lists orphans. */
  readonly volumes: VolumeStore | undefined;
  readonly templates: LocalTemplates;
  /** The runtime of a sandbox that asks for none. */
  readonly runtime: string | undefined;
  readonly policy: Policy;
  /** The limits of a sandbox that asks for none. Warm instances and spare trees have them. */
  readonly usual: Limits;
  /** Orders the verbs of each sandbox. */
  readonly queue: KeyedQueue<SandboxId>;
  /** Orders those of each snapshot. A verb that needs both enters the sandbox's queue first. */
  readonly snapshotQueue: KeyedQueue<SnapshotId>;
  readonly starts: Semaphore;
  readonly changes: Broadcast<Observation>;
  /** The instances of sandboxes that run. */
  readonly live: Map<SandboxId, Instance>;
  readonly held: HeldNames;
  readonly backgroundCleanup: BackgroundCleanup<SandboxId>;
  readonly pool: Pool;
  readonly spares: SpareTrees;
  /** Notices from now on when the instance ends by itself. */
  keepWatch(id: SandboxId, instance: Instance): void;
  onError(error: unknown): void;
  /** How many wait for a start. */
  foreground: number;
  closed: boolean;
}

/** Prefixes: `i-` an instance or an active tree, `s-` a snapshot's tree, `m-` a memory image. */
export const newName = {
  instance: () => `i-${randomName(20)}`,
  snapshotTree: () => `s-${randomName(20)}`,
  image: () => `m-${randomName(20)}`,
};

export function isSnapshotTree(name: string): boolean {
  return name.startsWith('s-');
}

/** Writes the record, and reports a change of phase. */
export async function save(
  { records, changes }: Engine,
  record: SandboxRecord,
  options: { undoable?: boolean } = {},
): Promise<Observation> {
  const before = records.get(record.id);
  await records.save(record, options);
  const observation = observationOf(record);
  const same =
    before?.phase === record.phase &&
    before.incarnation === record.incarnation &&
    before.frozen === record.frozen;
  if (!same) changes.send(observation);
  return observation;
}

/** A closed backend starts nothing: the next server has the data directory by then. */
export function requireOpen({ closed }: Pick<Engine, 'closed'>, id: SandboxId): void {
  if (closed) throw new CayError('unavailable', `Cannot start sandbox "${id}": the backend is closed`);
}

/** Rejects `not_found`. */
export function requireRecord({ records }: Pick<Engine, 'records'>, id: SandboxId): SandboxRecord {
  const record = records.get(id);
  if (!record || record.phase === 'removing')
    throw new CayError('not_found', `Sandbox "${id}" does not exist`);
  return record;
}

/** Rejects `not_found`, or `failed_precondition` unless it runs or is frozen. */
export function requireReady(
  engine: Pick<Engine, 'records' | 'live'>,
  id: SandboxId,
): { record: SandboxRecord; instance: Instance } {
  const record = requireRecord(engine, id);
  const instance = engine.live.get(id);
  if (record.phase === 'ready' && instance) return { record, instance };
  throw wrongPhase(record);
}

export function wrongPhase({ id, phase, reason }: SandboxRecord): CayError {
  // Between the end of its processes and the record of that end the phase is still `ready`.
  return new CayError('failed_precondition', `Sandbox "${id}" is ${phase === 'ready' ? 'ending' : phase}`, {
    details: { phase, ...(reason && { reason }) },
  });
}

export function quotaOf(
  { trees }: Pick<HostResources, 'trees'>,
  limits: Pick<Limits, 'diskBytes'>,
): number | null | undefined {
  return trees.capabilities.quota ? limits.diskBytes : undefined;
}

export async function setQuota(
  { trees }: Pick<HostResources, 'trees'>,
  tree: string,
  limits: Pick<Limits, 'diskBytes'>,
): Promise<void> {
  if (trees.capabilities.quota) await trees.setQuota(tree, limits.diskBytes);
}
