/**
 * The images that sandboxes are made from. Each image that is asked for is *prepared* once. Prepared images
 * are a cache: removing one that is not in use costs the time to make it again.
 */
import { createHash } from 'node:crypto';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { allowsImage, requireImage } from '../../policy/allow-image.ts';
import type { Policy } from '../../policy/policy.ts';
import { LABELS } from './container-config.ts';
import type { DockerClient } from './docker-client.ts';
import { guestFile } from './guest-file.ts';
import { prepareImage, type PreparedAs, type PreparedImage } from './prepare-image.ts';
import { inspectImage, pullImage, unknownImage } from './pull-image.ts';
import { sweepImages } from './sweep-images.ts';

export interface Images {
  /** Rejects `permission_denied` unless the operator allows the image. */
  requireAllowed(template: string): void;
  /** Rejects `not_found` unless the image is here or in its registry. Fetches nothing. */
  check(template: string, options?: { signal?: AbortSignal }): Promise<void>;
  /** The prepared image, made and pulled as needed. */
  prepare(template: string, options?: { signal?: AbortSignal }): Promise<PreparedImage>;
  /** A prepared image of another image. */
  prepareAs(image: { Id: string; Size: number }, as: PreparedAs): Promise<PreparedImage>;
  /** Templates that need not be pulled. */
  list(options?: { signal?: AbortSignal }): Promise<string[]>;
}

export interface ImagesOptions {
  installation: string;
  baseImage: string;
  policy: Pick<Policy, 'images'>;
  /** The guest's file on this machine. */
  guestPath: string;
}

/** `[registry[:port]/]name[/name…][:tag][@digest]`, as Docker has it. */
const REFERENCE =
  /^(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?)(?::[0-9]{1,5})?\/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/;

export function dockerImages(client: DockerClient, options: ImagesOptions): Images {
  const making = new Map<string, Promise<PreparedImage>>();
  const place = { client, installation: options.installation };
  const guest = guestFile(options.guestPath);
  let swept: Promise<void> | undefined;

  /**
   * The name of the image on the engine. Throws for one that the policy does not allow. The operator sets
   * what `base` is.
   */
  function referenceOf(template: string): string {
    const reference = template === 'base' ? options.baseImage : template;
    if (!REFERENCE.test(reference)) {
      throw new CayError('invalid_argument', `Template "${template}" is not the name of an image`, {
        hint: 'use "base", or a name such as "python:3.13-slim"',
      });
    }
    // Without a tag Docker would fetch all that the registry has.
    const tagged = /[:@][^/]*$/.test(reference) ? reference : `${reference}:latest`;
    if (template !== 'base') requireImage(options.policy, tagged);
    return tagged;
  }

  return {
    requireAllowed: (template) => void referenceOf(template),

    async check(template, { signal } = {}) {
      const reference = referenceOf(template);
      if (await inspectImage(client, reference, signal)) return;
      try {
        await client.json('GET', `/distribution/${reference}/json`, {
          action: `look for image "${reference}" in its registry`,
          signal,
          timeoutMs: 30_000,
        });
      } catch (error) {
        if (isCayError(error, 'cancelled')) throw error;
        throw unknownImage(template, error);
      }
    },

    async prepare(template, { signal } = {}) {
      const reference = referenceOf(template);
      const image =
        (await inspectImage(client, reference, signal)) ??
        (await pullImage(client, template, reference, signal));
      const guestOfNow = await guest();
      const { hash, architecture } = guestOfNow;
      if (
        image.Os !== 'linux' ||
        (architecture && image.Architecture && image.Architecture !== architecture)
      ) {
        throw new CayError(
          'unsupported',
          `Template "${template}" is for ${image.Os}/${image.Architecture}, and the guest for linux/${architecture}`,
        );
      }
      await (swept ??= sweepImages(place, hash).catch((error: unknown) => {
        swept = undefined;
        throw error;
      }));
      const tag = createHash('sha256').update(`${hash}\n${image.Id}`).digest('hex').slice(0, 32);
      const ready = await inspectImage(client, `cay-${options.installation}:${tag}`, signal);
      if (ready) return { id: ready.Id, sizeBytes: ready.Size };
      let one = making.get(tag);
      if (!one)
        making.set(
          tag,
          (one = prepareImage(place, guestOfNow, image, { tag }).finally(() => making.delete(tag))),
        );
      return one;
    },

    prepareAs: async (image, as) => prepareImage(place, await guest(), image, as),

    async list({ signal } = {}) {
      const images = (await client.json('GET', '/images/json', { action: 'list images', signal })) as {
        RepoTags: string[] | null;
        Labels: Record<string, string> | null;
      }[];
      const tags = images
        .filter(({ Labels }) => !Labels?.[LABELS.guest] && !Labels?.[LABELS.snapshot])
        .flatMap(({ RepoTags }) => RepoTags ?? []);
      const allowed = tags.filter((tag) => tag !== '<none>:<none>' && allowsImage(options.policy, tag));
      return ['base', ...allowed.sort()].slice(0, 256);
    },
  };
}
