import type { DockerClient } from './docker-client.ts';
import type { Found } from './containers.ts';

/** Resolves whether it has ended within that time. */
export async function waitForContainer(
  client: DockerClient,
  { container, name }: Pick<Found, 'container' | 'name'>,
  withinMs: number,
): Promise<boolean> {
  const timeout = AbortSignal.timeout(withinMs);
  try {
    await client.json('POST', `/containers/${container}/wait`, {
      action: `wait for the end of sandbox "${name.id}"`,
      query: { condition: 'not-running' },
      allow: [404],
      signal: timeout,
      timeoutMs: withinMs + 1000,
    });
    return true;
  } catch (error) {
    if (timeout.aborted) return false;
    throw error;
  }
}
