/**
 * Sandboxes that a backend has and no record knows. A sandbox is recorded before anything of it is made, and
 * forgotten after all of it is gone: what no record knows is nobody's.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../backends/backend.ts';
import type { Context } from './context.ts';
import { survey } from './grounds.ts';

export interface Stranger {
  id: SandboxId;
  /** Where it is. */
  ground: Backend;
}

export async function findStrangers({
  backend,
  sandboxes,
}: Pick<Context, 'backend' | 'sandboxes'>): Promise<Stranger[]> {
  const { found } = await survey(backend, (ground) => ground.list());
  return found.flatMap(({ it: { id }, ground }) => (sandboxes.get(id) ? [] : [{ id, ground }]));
}

/** In line with whatever else is done to that id. */
export async function removeStranger(
  { deeds, sandboxes }: Pick<Context, 'deeds' | 'sandboxes'>,
  { id, ground }: Stranger,
): Promise<void> {
  await deeds.run(id, async () => void (!sandboxes.get(id) && (await ground.remove(id))));
}
