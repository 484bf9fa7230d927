import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { resourceOf, renamed } from '../../host/resource-error.ts';
import { isSnapshotTree } from './engine.ts';
import type { LocalBackend } from './local.ts';

/** The error with the sandbox's own name in place of those that only this backend knows. */
export function namingSandbox(id: SandboxId, error: unknown): unknown {
  const resource = resourceOf(error);
  if (!resource || !isCayError(error)) return error;
  return renamed(error, isSnapshotTree(resource.name) ? 'its snapshot' : `sandbox "${id}"`, id);
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
