import { randomBytes } from 'node:crypto';
import { CayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { CallScope, SnapshotFacts } from '../backend.ts';
import { requireWanted } from '../support/check.ts';
import { LABELS } from './container-config.ts';
import { observationOf } from './container-state.ts';
import type { Found } from './containers.ts';
import type { DockerContext } from './docker-context.ts';
import { exportFiles } from './snapshot-content.ts';
import type { ImageInspect, SnapshotImages } from './snapshot-images.ts';
import { flatImage, removeImage } from './flat-image.ts';
import { readSpecLabel } from './spec-label.ts';

export const SNAPSHOT_FAULTS = ['docker.snapshot.begun', 'docker.snapshot.taken'] as const;

/** Storage drivers stack about 125 layers. Each generation of snapshots of snapshots adds one. */
const MOST_LAYERS = 100;
/** Those whose files the engine is known to see. */
const PLAIN_RUNTIMES = new Set(['runc', 'crun', 'youki']);
/** Of others, whether it was seen. */
const seenRuntimes = new Map<string, boolean>();

/**
 * Keeps what the container has written as one more layer. Volumes and memory filesystems are not part of it.
 */
export async function takeSnapshot(
  context: DockerContext & { snapshots: SnapshotImages },
  id: SandboxId,
  snapshot: SnapshotId,
  scope: CallScope,
): Promise<SnapshotFacts> {
  const { box, client, containers, snapshots } = context;
  requireWanted(scope.signal);
  const found = await containers.find(id, scope);
  if (!found) throw new CayError('not_found', `Cannot take a snapshot of sandbox "${id}": it does not exist`);
  const there = await snapshots.find(snapshot, scope);
  if (there?.facts.sandbox === id) return there.facts;
  if (there) throw new CayError('already_exists', `Snapshot "${snapshot}" exists already`);
  const { phase } = observationOf(found.name, found.inspect);
  if (phase === 'starting')
    throw new CayError('failed_precondition', `Cannot take a snapshot of sandbox "${id}": it is ${phase}`);
  const spec = readSpecLabel(id, found.inspect.Config.Labels?.[LABELS.spec], box);
  await requireVisible(context, id, found, scope);
  const action = `take a snapshot of sandbox "${id}"`;
  const base = (await client.json('GET', `/images/${found.inspect.Image}/json`, { action })) as ImageInspect;
  requireWanted(scope.signal);
  const facts = { id: snapshot, sandbox: id, spec };
  try {
    await faultPoint('docker.snapshot.begun');
    const taken =
      (base.RootFS?.Layers?.length ?? 0) < MOST_LAYERS
        ? await snapshots.commit(found.container, { ...facts, baseBytes: base.Size })
        : await flatten(context, found, facts);
    await faultPoint('docker.snapshot.taken');
    requireWanted(scope.signal);
    return taken;
  } catch (error) {
    await snapshots.remove(snapshot).catch(() => {});
    throw error;
  }
}

/** All files as an image of one layer, which has no image below. */
async function flatten(
  context: DockerContext & { snapshots: SnapshotImages },
  { container, inspect }: Found,
  facts: Pick<SnapshotFacts, 'id' | 'sandbox' | 'spec'>,
): Promise<SnapshotFacts> {
  const { client, images, snapshots } = context;
  const action = `take a snapshot of sandbox "${facts.sandbox}"`;
  const toFreeze = inspect.State.Running && !inspect.State.Paused;
  const setFrozen = (verb: string) =>
    client.json('POST', `/containers/${container}/${verb}`, { action, allow: [409] });
  if (toFreeze) await setFrozen('pause');
  let flat: ImageInspect;
  try {
    flat = await flatImage(context, exportFiles(client, container, action), { action, admit: undefined });
  } finally {
    if (toFreeze) await setFrozen('unpause');
  }
  try {
    await images.prepareAs(flat, { tag: facts.id, labels: snapshots.labelsOf({ ...facts, baseBytes: 0 }) });
    return (await snapshots.require(facts.id)).facts;
  } catch (error) {
    await removeImage(client, flat.Id).catch(() => {});
    throw error;
  }
}

/**
 * Rejects `unsupported` where the runtime keeps written files in a layer of its own, as gVisor does by
 * default: an image of the container would have none of them.
 */
async function requireVisible(
  { client, guests }: DockerContext,
  id: SandboxId,
  found: Found,
  { signal }: CallScope,
): Promise<void> {
  const { Runtime: runtime, ReadonlyRootfs: isReadOnly } = found.inspect.HostConfig;
  const { Running: isRunning, Paused: isPaused } = found.inspect.State;
  if (PLAIN_RUNTIMES.has(runtime) || isReadOnly || !isRunning || isPaused) return;
  let isSeen = seenRuntimes.get(runtime);
  if (isSeen === undefined) {
    const path = `/.cay/seen-${randomBytes(6).toString('hex')}`;
    const { link, guest } = guests.open(found);
    await link.ready({ signal, timeoutMs: 10_000 });
    const files = guest.files('root');
    await files.write(path, Buffer.from('x'), { signal });
    const stat = await client.header(
      `/containers/${found.container}/archive`,
      'x-docker-container-path-stat',
      {
        action: `take a snapshot of sandbox "${id}"`,
        query: { path },
      },
    );
    await files.remove(path, { signal });
    isSeen = stat !== undefined;
    seenRuntimes.set(runtime, isSeen);
  }
  if (isSeen) return;
  throw new CayError(
    'unsupported',
    `Cannot take a snapshot of sandbox "${id}": its runtime "${runtime}" keeps written files where Docker does not see them`,
    { hint: 'register the runtime with "--overlay2=none", or use another', details: { runtime } },
  );
}
