/** Looks at images of the engine, and has it pull those that it does not have. */
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { DockerClient } from './docker-client.ts';

/** What is read of `GET /images/{name}/json`. */
export interface ImageInspect {
  Id: string;
  Architecture: string;
  Os: string;
  Size: number;
}

const PULL_TIMEOUT_MS = 30 * 60_000;

/** Undefined if the engine does not have it. */
export async function inspectImage(
  client: DockerClient,
  reference: string,
  signal?: AbortSignal,
): Promise<ImageInspect | undefined> {
  return (await client.json('GET', `/images/${reference}/json`, {
    action: `look at image "${reference}"`,
    signal,
    allow: [404],
  })) as ImageInspect | undefined;
}

export function unknownImage(template: string, cause: unknown): CayError {
  const why = isCayError(cause) ? `: ${cause.message}` : '';
  return new CayError(
    'not_found',
    `Template "${template}" is unknown: Docker has no such image, and no registry gave it${why}`,
    {
      cause,
      details: { what: 'template' },
      hint: `try "docker pull" on the engine's machine`,
    },
  );
}

export async function pullImage(
  client: DockerClient,
  template: string,
  reference: string,
  signal?: AbortSignal,
): Promise<ImageInspect> {
  const action = `pull image "${reference}"`;
  const timeout = AbortSignal.timeout(PULL_TIMEOUT_MS);
  try {
    const call = {
      action,
      query: { fromImage: reference },
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    };
    for await (const progress of client.lines('POST', '/images/create', call)) {
      const { error } = progress as { error?: string };
      if (error !== undefined)
        throw new CayError('not_found', `Cannot ${action}: Docker says "${error.slice(0, 1000)}"`);
    }
  } catch (error) {
    if (isCayError(error) && ['cancelled', 'deadline_exceeded', 'resource_exhausted'].includes(error.code))
      throw error;
    throw unknownImage(template, error);
  }
  const image = await inspectImage(client, reference, signal);
  if (!image) throw unknownImage(template, undefined);
  return image;
}
