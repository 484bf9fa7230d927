import { newId } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';

/** What a create, or the parent of a fork, decides about a new sandbox. */
type Given = Pick<
  SandboxRow,
  | 'backend'
  | 'createdAtMs'
  | 'idle'
  | 'labels'
  | 'name'
  | 'network'
  | 'networks'
  | 'onBoot'
  | 'onTimeout'
  | 'origin'
  | 'ports'
  | 'project'
  | 'retention'
  | 'spec'
  | 'templateNetwork'
  | 'timeoutMs'
>;

/** The record of a sandbox that is about to be made. */
export function newSandboxRow(given: Given): SandboxRow {
  return {
    ...given,
    id: newId('sbx'),
    state: 'creating',
    reason: null,
    message: null,
    runtime: null,
    expiresAtMs: null,
    incarnation: 0,
    uid: null,
    startedAtMs: null,
    pausedAs: null,
    leaseUntilMs: null,
    usedAtMs: null,
    base: given.origin?.snapshot ?? null,
    turn: 0,
    operation: null,
    imageBytes: null,
  };
}
