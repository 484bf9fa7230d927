import { CayError } from '@cay/sdk/protocol';
import { isAway, type Backend, type ImageKeeping } from '../../backends/backend.ts';
import { choosePlatform, platformsOf } from '../placement/placement.ts';

/** The images of the platform that a sandbox will be on; nothing where it keeps none itself. */
export async function imagesFor(
  backend: Backend,
  wish: { platform?: string | undefined; labels: Readonly<Record<string, string>> },
): Promise<ImageKeeping | undefined> {
  const { platform: wanted, labels } = wish;
  const platform = choosePlatform(backend, { labels, ...(wanted !== undefined && { platform: wanted }) });
  if (platform === undefined) return backend.ability('images');
  const chosen = platformsOf(backend).find(({ name }) => name === platform);
  return (await chosen?.open())?.ability('images');
}

/** Those of the first platform that keeps images. Rejects `unsupported`. */
export async function requireImages(backend: Backend): Promise<ImageKeeping> {
  for (const { open } of platformsOf(backend)) {
    const platform = await open().catch((error: unknown) => {
      if (isAway(error)) return undefined;
      throw error;
    });
    const images = platform?.ability('images');
    if (images) return images;
  }
  throw new CayError('unsupported', `The ${backend.name} backend keeps no images itself`, {
    hint: 'name an image as the template of a sandbox, and the platform pulls it',
  });
}
