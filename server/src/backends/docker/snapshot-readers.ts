/**
 * Reading the files of a snapshot. The engine gives files of containers alone, so a snapshot that is read has
 * a container that never runs. It stays for a while, because who reads one file reads more.
 */
import type { SnapshotId } from '@cay/sdk/protocol';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { CallScope, Orphan } from '../backend.ts';
import { LABELS } from './container-config.ts';
import type { DockerContext } from './docker-context.ts';
import type { SnapshotImages } from './snapshot-images.ts';

export interface SnapshotReaders {
  /** Runs with the engine's id of a container that has the files. Rejects `not_found`. */
  reading<T>(
    snapshot: SnapshotId,
    scope: CallScope,
    read: (container: string) => AsyncIterable<T>,
  ): AsyncIterable<T>;
  /** Removes the container of a snapshot that nobody reads. */
  forget(snapshot: SnapshotId): Promise<void>;
  /** Containers that an earlier server left. */
  sweep(options: { dryRun: boolean }): Promise<Orphan[]>;
  close(): Promise<void>;
}

interface Reader {
  container: Promise<string>;
  readers: number;
  timer?: NodeJS.Timeout;
}

const IDLE_MS = 15_000;

export function snapshotReaders(
  { client, installation }: Pick<DockerContext, 'client' | 'installation'>,
  images: SnapshotImages,
): SnapshotReaders {
  const open = new Map<SnapshotId, Reader>();
  const held = new Set<string>();

  async function make(snapshot: SnapshotId, scope: CallScope): Promise<string> {
    const { image } = await images.require(snapshot, scope);
    const { Id } = (await client.json('POST', '/containers/create', {
      action: `read snapshot "${snapshot}"`,
      body: {
        Image: image,
        Entrypoint: ['/none'],
        NetworkDisabled: true,
        // The image's labels are those of a sandbox, which this is not.
        Labels: { [LABELS.installation]: '', [LABELS.sandbox]: '', [LABELS.reader]: installation },
        HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none' } },
      },
    })) as { Id: string };
    held.add(Id);
    return Id;
  }

  async function removeContainer(container: string): Promise<void> {
    await client.json('DELETE', `/containers/${container}`, {
      action: 'remove the container of a snapshot that was read',
      query: { force: true, v: true },
      allow: [404, 409],
    });
    held.delete(container);
  }

  async function forget(snapshot: SnapshotId): Promise<void> {
    const reader = open.get(snapshot);
    if (!reader || reader.readers > 0) return;
    open.delete(snapshot);
    clearTimeout(reader.timer);
    const container = await reader.container.catch(() => undefined);
    if (container !== undefined) await removeContainer(container);
  }

  return {
    async *reading(snapshot, scope, read) {
      let reader = open.get(snapshot);
      if (!reader) {
        reader = { container: make(snapshot, scope), readers: 0 };
        open.set(snapshot, reader);
      }
      clearTimeout(reader.timer);
      reader.readers++;
      try {
        yield* read(await reader.container);
      } catch (error) {
        // The next reader tries again.
        if (reader.readers === 1 && (await isLost(reader))) open.delete(snapshot);
        throw error;
      } finally {
        reader.readers--;
        if (reader.readers === 0 && open.get(snapshot) === reader)
          reader.timer = setTimeout(() => inBackground(forget(snapshot), ignoreFailure), IDLE_MS).unref();
      }
    },

    forget,

    async sweep({ dryRun }) {
      const found = (await client.json('GET', '/containers/json', {
        action: 'look for containers without a reader',
        query: { all: true, filters: JSON.stringify({ label: [`${LABELS.reader}=${installation}`] }) },
      })) as { Id: string }[];
      // One that is being made is in the list before it is held, for which the sweep of the next minute is
      // early enough.
      const lost = open.size > held.size ? [] : found.filter(({ Id }) => !held.has(Id));
      if (!dryRun) for (const { Id } of lost) await removeContainer(Id);
      return lost.map(({ Id }) => ({ kind: 'container', name: Id.slice(0, 12) }));
    },

    async close() {
      await Promise.all([...open.keys()].map((snapshot) => forget(snapshot).catch(() => {})));
    },
  };

  async function isLost({ container }: Reader): Promise<boolean> {
    const id = await container.catch(() => undefined);
    if (id === undefined) return true;
    return !(await client
      .json('GET', `/containers/${id}/json`, { action: 'look at a container', allow: [404] })
      .catch(() => true));
  }
}
