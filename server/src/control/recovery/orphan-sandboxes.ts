/**
 * Sandboxes that a backend has and no record knows. A sandbox is recorded before anything of it is made, and
 * forgotten after all of it is gone: what no record knows is nobody's.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import type { Context } from '../context.ts';
import { survey } from '../placement/placement.ts';

export interface OrphanSandbox {
  id: SandboxId;
  /** Where it is. */
  platform: Backend;
}

export async function findOrphanSandboxes({
  backend,
  sandboxes,
}: Pick<Context, 'backend' | 'sandboxes'>): Promise<OrphanSandbox[]> {
  const { found } = await survey(backend, (platform) => platform.list());
  return found.flatMap(({ it: { id }, platform }) => (sandboxes.get(id) ? [] : [{ id, platform }]));
}

/** In line with whatever else is done to that id. */
export async function removeOrphanSandbox(
  { operations, sandboxes }: Pick<Context, 'operations' | 'sandboxes'>,
  { id, platform }: OrphanSandbox,
): Promise<void> {
  await operations.run(id, async () => void (!sandboxes.get(id) && (await platform.remove(id))));
}
