import { CayError } from '@cay/sdk/protocol';
import type { Policy } from './policy.ts';

/** A directory of the host that sandboxes may mount, with everything below it. */
export interface HostPath {
  readonly path: string;
  /** It may be written too. */
  readonly writable: boolean;
}

/** `/path`, or `/path:rw`. Rejects `invalid_argument`. */
export function parseHostPath(text: string): HostPath {
  const writable = text.endsWith(':rw');
  const path = writable ? text.slice(0, -':rw'.length) : text;
  const parts = path.split('/').slice(1);
  const isPlain = parts.every((part) => part !== '' && part !== '.' && part !== '..');
  if (path.startsWith('/') && parts.length > 0 && isPlain) return { path, writable };
  throw new CayError('invalid_argument', `Cannot allow the host path "${text}": it is no absolute path`, {
    hint: 'write /srv/data, or /srv/data:rw if sandboxes may write to it',
  });
}

/**
 * What of the host is mounted: the path that the operator allows, and the way from there, on which no symlink
 * is followed. Throws `permission_denied`.
 */
export function requireHostPath(
  { hostPaths = [] }: Pick<Policy, 'hostPaths'>,
  source: string,
  readOnly: boolean,
): { allowed: string; subpath?: string } {
  const above = hostPaths.filter(({ path }) => source === path || source.startsWith(`${path}/`));
  const found = above.find(({ writable }) => writable || readOnly);
  if (found) {
    const subpath = source.slice(found.path.length + 1);
    return { allowed: found.path, ...(subpath !== '' && { subpath }) };
  }
  if (above.length > 0)
    throw new CayError('permission_denied', `The directory "${source}" of the host may be read only`, {
      hint: 'mount it read-only',
    });
  throw new CayError('permission_denied', `The directory "${source}" of the host may not be mounted here`, {
    hint: 'the operator allows directories with --allow-host-path; a volume needs no permission',
  });
}
