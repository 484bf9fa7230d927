import { isCayError } from '@cay/sdk/client';
import { openClient, type Client } from './client.ts';
import { isOwnServer, type CommonOptions } from './settings.ts';
import type { Composition } from '../verb.ts';

/**
 * Does something with a server, and starts this machine's if none answers. It is tried first, which saves a
 * question to a server that runs.
 */
export async function withServer<T>(
  composition: Composition,
  options: CommonOptions,
  act: (client: Client) => Promise<T>,
): Promise<T> {
  try {
    return await act(openClient(options));
  } catch (error) {
    if (!isCayError(error, 'unavailable') || !isOwnServer(options)) throw error;
    const { ensureServer } = await import('./background-server.ts');
    if (!(await ensureServer(composition, options))) throw error;
    return act(openClient(options));
  }
}
