/**
 * Snapshots as images of the engine. An image is a snapshot as long as it has the tag of one: a removed
 * snapshot whose layers others stand on loses its tag, and the engine removes it with the last of them.
 */
import { CayError, isId, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import type { CallScope, SnapshotFacts } from '../backend.ts';
import { LABELS } from './container-config.ts';
import type { DockerContext } from './docker-context.ts';
import { readSpecLabel, specLabel } from './spec-label.ts';

export interface SnapshotImage {
  /** The engine's id of the image. */
  image: string;
  facts: SnapshotFacts;
  layers: number;
}

export interface SnapshotImages {
  find(snapshot: SnapshotId, scope?: CallScope): Promise<SnapshotImage | undefined>;
  /** Rejects `not_found`. */
  require(snapshot: SnapshotId, scope?: CallScope): Promise<SnapshotImage>;
  list(scope?: CallScope): Promise<SnapshotFacts[]>;
  /** Makes an image of what the container is now, which does not run meanwhile. */
  commit(container: string, facts: CommitFacts): Promise<SnapshotFacts>;
  /** What says on an image which snapshot it is. */
  labelsOf(facts: CommitFacts): Record<string, string>;
  /** An absent one is done. */
  remove(snapshot: SnapshotId): Promise<void>;
}

export interface CommitFacts extends Pick<SnapshotFacts, 'id' | 'sandbox' | 'spec'> {
  /** Bytes of the image that the container is of. */
  baseBytes: number;
}

/** What is read of `GET /images/{name}/json`. */
export interface ImageInspect {
  Id: string;
  Size: number;
  Config?: { Labels?: Record<string, string> | null } | null;
  RootFS?: { Layers?: string[] | null };
}

/** Files are copied into a layer at the speed of the disk. */
const COMMIT_MS = 60 * 60_000;

export function snapshotImages({
  client,
  installation,
  box,
}: Pick<DockerContext, 'client' | 'installation' | 'box'>): SnapshotImages {
  const repository = `cay-${installation}`;
  const tagOf = (snapshot: SnapshotId) => `${repository}:${snapshot}`;

  function factsOf(id: SnapshotId, labels: Record<string, string>, sizeBytes: number): SnapshotFacts {
    const spec = readSpecLabel(id, labels[LABELS.spec], box, { withoutEnv: true });
    const fileBytes = Math.max(0, sizeBytes - Number(labels[LABELS.baseBytes] ?? 0));
    return { id, sandbox: labels[LABELS.sandbox] as SandboxId, spec, memory: false, fileBytes };
  }

  async function find(snapshot: SnapshotId, { signal }: CallScope = {}): Promise<SnapshotImage | undefined> {
    const seen = (await client.json('GET', `/images/${tagOf(snapshot)}/json`, {
      action: `look at snapshot "${snapshot}"`,
      signal,
      allow: [404],
    })) as ImageInspect | undefined;
    const labels = seen?.Config?.Labels ?? {};
    if (!seen || labels[LABELS.snapshot] !== snapshot) return undefined;
    const facts = factsOf(snapshot, labels, seen.Size);
    const spec = readSpecLabel(snapshot, labels[LABELS.spec], box);
    return { image: seen.Id, facts: { ...facts, spec }, layers: seen.RootFS?.Layers?.length ?? 0 };
  }

  function labelsOf({ id, sandbox, spec, baseBytes }: CommitFacts): Record<string, string> {
    return {
      [LABELS.installation]: installation,
      [LABELS.snapshot]: id,
      [LABELS.sandbox]: sandbox,
      [LABELS.spec]: specLabel(id, spec, box),
      [LABELS.baseBytes]: String(baseBytes),
      // Those of the container, which are nothing to the image.
      [LABELS.parent]: '',
      [LABELS.specHash]: '',
      [LABELS.scratch]: '',
    };
  }

  return {
    find,

    async require(snapshot, scope) {
      const found = await find(snapshot, scope);
      if (found) return found;
      throw new CayError('not_found', `Snapshot "${snapshot}" does not exist`, {
        details: { what: 'snapshot' },
      });
    },

    async list({ signal } = {}) {
      const images = (await client.json('GET', '/images/json', {
        action: 'list snapshots',
        query: {
          filters: JSON.stringify({
            label: [`${LABELS.installation}=${installation}`, LABELS.snapshot],
          }),
        },
        signal,
      })) as { RepoTags: string[] | null; Labels: Record<string, string> | null; Size: number }[];
      return images.flatMap(({ RepoTags, Labels, Size }) => {
        const id = Labels?.[LABELS.snapshot];
        if (!Labels || !isId('snap', id) || !RepoTags?.includes(tagOf(id as SnapshotId))) return [];
        return [factsOf(id as SnapshotId, Labels, Size)];
      });
    },

    labelsOf,

    async commit(container, facts) {
      const { id, sandbox } = facts;
      const action = `take snapshot "${id}" of sandbox "${sandbox}"`;
      await client.json('POST', '/commit', {
        action,
        query: { container, repo: repository, tag: id, pause: true },
        body: { Labels: labelsOf(facts) },
        timeoutMs: COMMIT_MS,
      });
      const made = await find(id);
      if (made) return made.facts;
      throw new CayError('internal', `Cannot ${action}: Docker does not have what it made`);
    },

    async remove(snapshot) {
      // 409: a container is being made of it. The image loses its tag with the next attempt.
      await client.json('DELETE', `/images/${tagOf(snapshot)}`, {
        action: `remove snapshot "${snapshot}"`,
        query: { force: true },
        allow: [404],
      });
    },
  };
}
