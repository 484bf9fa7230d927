import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { LocalBackend } from './local.ts';

/** What the host's layers call by the names of instances, trees and images, of which callers know nothing. */
const OF_SANDBOX = /\b(?:container|cgroup|instance|tree) "i-[a-z0-9]{20}"/gi;
const OF_SNAPSHOT = /\b(?:committed )?tree "s-[a-z0-9]{20}"/gi;
const BARE = /\bi-[a-z0-9]{20}\b/g;

/** The error with the sandbox's own name in place of those that only this backend knows. */
export function namingSandbox(id: SandboxId, error: unknown): unknown {
  if (!(error instanceof CayError)) return error;
  const told = (text: string) =>
    text.replace(OF_SANDBOX, `sandbox "${id}"`).replace(OF_SNAPSHOT, 'its snapshot').replace(BARE, id);
  const message = told(error.message);
  const details = Object.fromEntries(
    Object.entries(error.details).map(([key, value]) => [
      key,
      typeof value === 'string' ? told(value) : value,
    ]),
  );
  if (message === error.message && Object.keys(details).every((key) => details[key] === error.details[key]))
    return error;
  const { code, hint } = error;
  return new CayError(code, message, {
    details,
    cause: error,
    ...(hint !== undefined && { hint: told(hint) }),
  });
}

const VERBS = [
  'ensure',
  'stats',
  'stop',
  'remove',
  'resize',
  'freeze',
  'thaw',
  'hibernate',
  'snapshot',
  'rollback',
  'clone',
] as const;

/** Has what the verbs of a sandbox reject with speak of that sandbox. */
export function nameSandboxes(backend: LocalBackend): LocalBackend {
  type Verb = (id: SandboxId, ...rest: unknown[]) => Promise<unknown>;
  const named = VERBS.map((name): [string, Verb] => {
    const verb = backend[name] as Verb;
    return [
      name,
      (id, ...rest) =>
        verb(id, ...rest).catch((error: unknown) => {
          throw namingSandbox(id, error);
        }),
    ];
  });
  return Object.assign(backend, Object.fromEntries(named));
}
