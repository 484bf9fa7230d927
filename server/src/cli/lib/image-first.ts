import { isCayError, type Image, type PullLine } from '@cay/sdk/client';
import type { Client } from './client.ts';
import { followPull } from './pull-bars.ts';

/**
 * Pulls the image of a sandbox that is about to be made, if it is not on the server, and shows how far it is.
 * Nothing where the platform pulls images by itself.
 */
export async function imageFirst(client: Client, image: string): Promise<Image | undefined> {
  try {
    const lines = client.transport.lines<PullLine>('POST', '/v1/images/pull', {
      json: { image, missingOnly: true },
    });
    return (await followPull(image, lines))[0];
  } catch (error) {
    if (isCayError(error, 'unsupported') && error.details['platforms'] === undefined) return undefined;
    throw error;
  }
}
