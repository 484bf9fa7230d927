/**
 * Errors about a resource of the host: a container, a cgroup or a tree.
 *
 * The host knows its resources by names that callers have never seen. The code that knows the owner of the
 * resource says the same sentence again with `renamed`, so that no code searches a message for names.
 */
import { CayError, type CayErrorOptions, type ErrorCode } from '@cay/sdk/protocol';

export interface Resource {
  kind: 'container' | 'cgroup' | 'tree';
  name: string;
}

/** The whole message, of what the resource is called: `container "i-…"`. */
type Sentence = (called: string) => string;

const NAMED = new WeakMap<CayError, { resource: Resource; sentence: Sentence }>();

export function resourceError(
  code: ErrorCode,
  resource: Resource,
  sentence: Sentence,
  options?: CayErrorOptions,
): CayError {
  const error = new CayError(code, sentence(`${resource.kind} "${resource.name}"`), options);
  NAMED.set(error, { resource, sentence });
  return error;
}

/** What an error is about, if it was made here. */
export function resourceOf(error: unknown): Resource | undefined {
  return error instanceof CayError ? NAMED.get(error)?.resource : undefined;
}

/**
 * The same error with another name for its resource. Words of other programs in it, which may have the name
 * of the resource too, get `bare` in its place.
 */
export function renamed(error: CayError, called: string, bare: string): CayError {
  const named = NAMED.get(error);
  if (!named) return error;
  const { name } = named.resource;
  const without = (text: string) => text.replaceAll(name, bare);
  const { code, hint } = error;
  const details = Object.entries(error.details).map(([key, value]) => [
    key,
    typeof value === 'string' ? without(value) : value,
  ]);
  return new CayError(code, without(named.sentence(called)), {
    details: Object.fromEntries(details) as CayError['details'],
    cause: error,
    ...(hint !== undefined && { hint: without(hint) }),
  });
}
