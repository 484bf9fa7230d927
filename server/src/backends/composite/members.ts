import type { CayError, SandboxSpec } from '@cay/sdk/protocol';
import type { Broadcast } from '../../lib/broadcast.ts';
import type { Backend, CallScope, Observation } from '../backend.ts';

/** One member's answer, or why it did not answer. */
export type Answer<T> = { name: string } & ({ answer: T } | { away: CayError });

/**
 * The backends that a composite is made of, by name. The kind of member decides how a new sandbox is
 * routed: a platform of the operator's (`platform-members.ts`), or a project
 * (`kubernetes/tenancy/project-namespaces.ts`).
 */
export interface Members {
  /** What a member is called in messages: `platform`, `namespace`. */
  readonly noun: string;
  /** The member that is asked about an id which no member has; it answers that the id does not exist. */
  readonly fallback: string;
  /** The changes of all members. */
  readonly changes: Broadcast<Observation>;
  /**
   * The member for a new sandbox, if the spec or the scope says one. Undefined: it is where it is found, else
   * on the fallback. Throws `not_found` for an unknown name.
   */
  target(spec: SandboxSpec, scope: CallScope): string | undefined;
  /** The same for what has no spec. Absent: it is the fallback. */
  home?(scope: CallScope): string | undefined;
  /** Whether this server has a member of this name. */
  has(name: string): boolean;
  /** Rejects `unavailable` while the member cannot be opened, `not_found` for an unknown name. */
  get(name: string): Promise<Backend>;
  /** Members that are open now, and whether those are all: the abilities of the others are unknown. */
  opened(): { backends: Backend[]; complete: boolean };
  /** Asks every member at once. A member that does not answer is `away`, or makes this reject. */
  each<T>(ask: (backend: Backend, name: string) => Promise<T>, scope?: CallScope): Promise<Answer<T>[]>;
  /** The spec as clients see it, with the member's name where a spec has one. */
  label(spec: SandboxSpec, name: string): SandboxSpec;
  close(): Promise<void>;
}

/** The spec as a member sees it, which knows of no others. */
export function ownSpec({ platform: _platform, ...spec }: SandboxSpec): SandboxSpec {
  return spec;
}
