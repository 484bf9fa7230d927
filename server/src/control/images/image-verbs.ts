import { CayError, type Image, type PullLine, type PullProgress } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import { requireAdmin, type Principal } from '../tenants/principal.ts';
import type { ImageVerbs } from './image.ts';
import { imagesFor, requireImages } from './keeps-images.ts';

export function imageVerbs({ backend, records }: Pick<Core, 'backend' | 'records'>): ImageVerbs {
  const note = async ({ project, key }: Principal, type: string, data: Record<string, string>) =>
    await records.events.append({ type, project, key, data });

  return {
    resolve: async (_principal, name) => (await imagesFor(backend, { labels: {} }))?.resolveImage(name),

    async *pull(principal, { image, missingOnly }, { signal }) {
      const images = await requireImages(backend);
      yield* followed(signal, async (call) => {
        const pulled = await images.pullImage(image, { ...call, missingOnly, project: principal.project });
        await note(principal, 'image.pulled', { image, digest: pulled.digest });
        return [pulled];
      });
    },

    async *import(principal, archive, { name }, { signal }) {
      requireAdmin(principal);
      const images = await requireImages(backend);
      yield* followed(signal, async (call) => {
        const imported = await images.importImages(archive, {
          ...call,
          name,
          project: principal.project,
        });
        for (const { names, digest } of imported)
          await note(principal, 'image.imported', { image: names[0] ?? digest, digest });
        return imported;
      });
    },

    async list(principal) {
      requireAdmin(principal);
      return (await requireImages(backend)).listImages();
    },

    async get(principal, name) {
      requireAdmin(principal);
      const images = await requireImages(backend);
      const all = await images.listImages();
      const found = all.find(({ names, digest }) =>
        [...names, ...names.map((each) => each.replace(/:latest$/, '')), digest].includes(name),
      );
      if (found) return found;
      throw new CayError('not_found', `Image "${name.slice(0, 200)}" is not here`, {
        details: { what: 'image' },
      });
    },

    async remove(principal, name) {
      requireAdmin(principal);
      await (await requireImages(backend)).removeImage(name);
      await note(principal, 'image.removed', { image: name });
    },
  };
}

/** Progress as it comes, the newest alone for a slow reader, and then the result. */
async function* followed(
  signal: AbortSignal,
  work: (call: { signal: AbortSignal; onProgress(progress: PullProgress): void }) => Promise<Image[]>,
): AsyncGenerator<PullLine, void, undefined> {
  const left = new AbortController();
  let newest: PullProgress | undefined;
  let wake = Promise.withResolvers<void>();
  const onProgress = (progress: PullProgress) => {
    newest = progress;
    wake.resolve();
  };
  const done = work({ signal: AbortSignal.any([signal, left.signal]), onProgress });
  // The loop sees the failure, or the reader has left.
  done.catch(() => {}).finally(() => wake.resolve());
  let settled = false;
  const settle = () => void (settled = true);
  done.then(settle, settle);
  try {
    for (;;) {
      await wake.promise;
      wake = Promise.withResolvers<void>();
      if (newest) yield { progress: newest };
      newest = undefined;
      if (settled) break;
    }
    yield { images: await done };
  } finally {
    left.abort();
  }
}
