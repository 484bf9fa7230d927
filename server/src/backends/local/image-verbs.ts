import { CayError, type Image } from '@cay/sdk/protocol';
import type { Image as StoredImage, ImageStore } from '../../host/images/image.ts';
import { familiarName, parseReference, type ImageReference } from '../../host/images/reference.ts';
import type { IdMapping } from '../../host/runtimes/runtime.ts';
import { requireImage } from '../../policy/allow-image.ts';
import type { ImageKeeping } from '../backend.ts';
import type { Engine } from './engine.ts';
import { pickRuntime } from './pick-runtime.ts';

/** The images that sandboxes on this machine are made from. */
export function imageVerbs(engine: Engine, store: ImageStore): ImageKeeping {
  const { templates } = engine;
  const idsNow = async (): Promise<IdMapping> => (await pickRuntime(engine)).ids;

  /** Rejects for a name that the operator does not allow, or that a template has. */
  function imageCalled(name: string): ImageReference {
    // Here it cannot be a template that was meant.
    const reference = templates.image(/[:/@]/.test(name) ? name : `${name}:latest`);
    if (reference) return reference;
    throw new CayError('invalid_argument', `"${name}" is a template of this server, not an image`);
  }

  const pullAgain: ImageStore['prepare'] = async (reference, options) => ({
    ...(await store.pull(reference, options)),
    tree: '',
  });

  return {
    async resolveImage(template, { signal } = {}) {
      const reference = templates.image(template);
      if (!reference) return undefined;
      const { digest, config } = await store.resolve(reference, { ...(signal && { signal }) });
      templates.noteDigest(reference, digest);
      return { pinned: familiarName({ ...reference, digest }), config };
    },

    async pullImage(name, { project, signal, onProgress, missingOnly = false } = {}) {
      const reference = imageCalled(name);
      const { tree: _tree, ...image } = await (missingOnly ? store.prepare : pullAgain)(reference, {
        ids: await idsNow(),
        project,
        ...(signal && { signal }),
        ...(onProgress && { onProgress }),
      });
      return shown(image);
    },

    async importImages(archive, { name, project, signal, onProgress } = {}) {
      const wanted = name === undefined ? undefined : parseReference(name);
      if (wanted) requireImage(engine.policy, familiarName(wanted));
      const images = await store.import(archive, {
        ids: await idsNow(),
        project,
        ...(wanted && { name: wanted }),
        ...(signal && { signal }),
        ...(onProgress && { onProgress }),
      });
      return images.map(shown);
    },

    listImages: async () => store.list().map(shown),
    removeImage: async (name) => store.remove(parseReference(name)),

    shareImages: (shares) => store.share(shares),
    imageBytes: (project) => store.taken(project),

    pullProgress(template) {
      try {
        return store.progress(parseReference(template));
      } catch {
        return undefined;
      }
    },
  };
}

function shown({ names, ...image }: StoredImage): Image {
  return { ...image, names: names.map((name) => familiarName(parseReference(name))) };
}
