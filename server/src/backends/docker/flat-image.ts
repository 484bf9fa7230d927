import { CayError } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';
import { checkedTree } from '../support/checked-tree.ts';
import { LABELS } from './container-config.ts';
import type { DockerClient } from './docker-client.ts';
import type { DockerContext } from './docker-context.ts';
import type { ImageInspect } from './snapshot-images.ts';

interface FlatImageOptions extends CallScope {
  action: string;
  /** Called before so many bytes are written. */
  admit: ((bytes: number) => void | Promise<void>) | undefined;
}

async function* admitted(
  files: AsyncIterable<Uint8Array>,
  admit: FlatImageOptions['admit'],
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const part of files) {
    await admit?.(part.length);
    yield part;
  }
}

/** Puts a tree over the files of a container that does not run. */
export async function unpackInto(
  client: DockerClient,
  container: string,
  files: AsyncIterable<Uint8Array>,
  { action, admit, signal }: FlatImageOptions,
): Promise<void> {
  await client.upload('PUT', `/containers/${container}/archive`, {
    action,
    query: { path: '/' },
    archive: checkedTree(admitted(files, admit)),
    ...(signal && { signal }),
  });
}

/**
 * An image of one layer with exactly these files and no name, which the next sweep removes unless it is used.
 */
export async function flatImage(
  { client, installation }: Pick<DockerContext, 'client' | 'installation'>,
  files: AsyncIterable<Uint8Array>,
  { action, admit, signal }: FlatImageOptions,
): Promise<ImageInspect> {
  const lines = (await client.upload('POST', '/images/create', {
    action,
    query: { fromSrc: '-', changes: `LABEL ${LABELS.scratch}=${installation}` },
    archive: checkedTree(admitted(files, admit)),
    ...(signal && { signal }),
  })) as { status?: string; error?: string }[];
  const error = lines.find((line) => line.error !== undefined)?.error;
  const image = lines.findLast(({ status }) => /^sha256:[0-9a-f]{64}$/.test(status ?? ''))?.status;
  if (error !== undefined || image === undefined)
    throw new CayError(
      /no space left/i.test(error ?? '') ? 'resource_exhausted' : 'internal',
      `Cannot ${action}: Docker says "${(error ?? 'nothing').slice(0, 1000)}"`,
    );
  return (await client.json('GET', `/images/${image}/json`, { action })) as ImageInspect;
}

/** An absent one is done, and one that others stand on stays. */
export async function removeImage(client: DockerClient, image: string): Promise<void> {
  await client.json('DELETE', `/images/${image}`, { action: 'remove an image', allow: [404, 409] });
}
