/**
 * Templates by name, and images by theirs: a name that no template has is the name of an image. A name
 * without a tag, a digest and a path is not fetched from anywhere: it is more likely a template that is
 * misspelt or gone.
 */
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { ImageStore } from '../../host/images/image.ts';
import {
  canonicalName,
  familiarName,
  parseReference,
  taggedPart,
  type ImageReference,
} from '../../host/images/reference.ts';
import type { IdMapping } from '../../host/runtimes/runtime.ts';
import type { PreparedTemplate, Template } from '../../host/templates/template.ts';
import { allowsImage, requireImage } from '../../policy/allow-image.ts';
import type { Policy } from '../../policy/policy.ts';
import type { PreparedTemplates } from './prepared-templates.ts';

export interface LocalTemplates {
  /**
   * Rejects `not_found` for what no template and no registry has, `permission_denied` for an image that the
   * operator does not allow. With `made` the policy alone decides: the files are there.
   */
  check(name: string, options: { made: boolean; signal?: AbortSignal | undefined }): Promise<void>;
  prepare(
    name: string,
    ids: IdMapping,
    options?: { project?: string | undefined; signal?: AbortSignal | undefined },
  ): Promise<PreparedTemplate>;
  forget(name: string): void;
  /** The image that this name means, if the policy allows it. Undefined for the name of a template. */
  image(name: string, options?: { made?: boolean }): ImageReference | undefined;
  /** Notes that the registry has just said that the tag leads to this digest. */
  noteDigest(reference: ImageReference, digest: string): void;
}

export interface ImageTemplatesOptions {
  known: ReadonlyMap<string, Template>;
  store: ImageStore | undefined;
  policy: Pick<Policy, 'images'>;
}

/** For so long an answer of a registry is used again. */
const SEEN_MS = 30_000;
const MOST_SEEN = 1000;

export function imageTemplates(
  templates: PreparedTemplates,
  { known, store, policy }: ImageTemplatesOptions,
): LocalTemplates {
  const seen = new Map<string, number>();
  /** What tags lead to, as their registries said. */
  const digests = new Map<string, string>();

  /**
   * Both ways to write it mean the same. A digest is allowed if the tag beside it is and leads there: any
   * other would be any image of that repository.
   */
  function requireAllowed(reference: ImageReference, made: boolean): void {
    const tagged = taggedPart(reference);
    const trusted =
      reference.digest !== undefined &&
      tagged !== undefined &&
      (made ||
        digests.get(canonicalName(tagged)) === reference.digest ||
        store?.find(tagged)?.digest === reference.digest);
    const named = [reference, ...(trusted ? [tagged] : [])];
    const names = named.flatMap((each) => [familiarName(each), canonicalName(each)]);
    if (!names.some((name) => allowsImage(policy, name))) requireImage(policy, familiarName(reference));
  }

  function image(name: string, { made = false } = {}): ImageReference | undefined {
    if (known.has(name) || !store) {
      templates.get(name);
      return undefined;
    }
    const unknownTemplate = (cause?: unknown) =>
      new CayError('not_found', `Template "${name.slice(0, 200)}" is unknown`, {
        cause,
        hint: `there are ${[...known.keys()].join(', ')}, and images with a tag, such as python:3.13-slim`,
        details: { what: 'template' },
      });
    let reference: ImageReference;
    try {
      reference = parseReference(name);
    } catch (cause) {
      throw unknownTemplate(cause);
    }
    if (!/[:/@]/.test(name) && !store.find(reference)) throw unknownTemplate();
    requireAllowed(reference, made);
    return reference;
  }

  return {
    image,
    noteDigest(reference, digest) {
      const tagged = reference.digest === undefined ? taggedPart(reference) : undefined;
      if (!tagged) return;
      if (digests.size >= MOST_SEEN) digests.clear();
      digests.set(canonicalName(tagged), digest);
    },
    async check(name, { made, signal }) {
      const reference = image(name, { made });
      if (!reference || made || store!.find(reference)) return;
      const key = canonicalName(reference);
      if (performance.now() - (seen.get(key) ?? -SEEN_MS) < SEEN_MS) return;
      try {
        await store!.resolve(reference, { ...(signal && { signal }) });
      } catch (error) {
        if (!isCayError(error, 'not_found')) throw error;
        throw unknown(name, error);
      }
      if (seen.size >= MOST_SEEN) seen.clear();
      seen.set(key, performance.now());
    },
    async prepare(name, ids, { project, signal } = {}) {
      const reference = image(name, { made: true });
      if (!reference) return templates.prepare(name, ids);
      const { tree, digest, config } = await store!.prepare(reference, {
        ids,
        project,
        ...(signal && { signal }),
      });
      const { digest: _digest, ...tagged } = reference;
      return { tree, binds: [], image: { name: canonicalName(tagged), digest, env: config.env } };
    },
    forget: (name) => templates.forget(name),
  };
}

function unknown(name: string, cause: CayError): CayError {
  return new CayError(
    'not_found',
    `Template "${name}" is unknown: no template has that name, and ${cause.message}`,
    {
      cause,
      details: { what: 'template' },
    },
  );
}
