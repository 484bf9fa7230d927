/** Tells backends that keep images what projects may have of them, and counts it for the quota. */
import { isAway } from '../../backends/backend.ts';
import { platformsOf } from '../placement/placement.ts';
import type { Core } from '../core.ts';

const DIGEST = /@(sha256:[0-9a-f]{64})$/;

export async function shareImages({
  backend,
  quota,
  records,
}: Pick<Core, 'backend' | 'quota' | 'records'>): Promise<void> {
  for (const { name, open } of platformsOf(backend)) {
    const platform = await open().catch((error: unknown) => {
      if (isAway(error)) return undefined;
      throw error;
    });
    const images = platform?.ability('images');
    if (!images) continue;
    quota.counts('imageBytes', name, (project) => images.imageBytes(project));
    images.shareImages({
      limit: (project) => quota.limit(records, project, 'imageBytes'),
      async uses(project) {
        const made = [
          ...(await records.sandboxes.list({ project })),
          ...(await records.snapshots.list({ project })),
        ];
        return new Set(made.flatMap(({ spec }) => DIGEST.exec(spec.template)?.[1] ?? []));
      },
    });
  }
}
