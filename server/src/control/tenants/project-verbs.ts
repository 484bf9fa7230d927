import {
  CayError,
  type CreateProjectSchema,
  type Project,
  type Quota,
  type UpdateProject,
} from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { KeyRecords } from '../../records/keys.ts';
import type { ProjectRecords } from '../../records/projects.ts';
import type { EventLog } from '../events/event-log.ts';
import type { Idempotency } from './idempotency.ts';
import { requireAdmin, type Principal } from './principal.ts';
import type { QuotaLedger } from './quota-ledger.ts';
import type { TokenEpochs } from './token-epochs.ts';

export type CreateProject = z.output<typeof CreateProjectSchema>;

/** What a project takes of each quota. A limit of null is none. */
export type QuotaUsage = Record<keyof Quota, { used: number; limit: number | null }>;

export interface ProjectVerbs {
  /** Oldest first. An admin sees all, others their own. */
  list(principal: Principal): Project[];
  /** Needs an admin. Rejects `already_exists` for a name that is taken. */
  create(
    principal: Principal,
    request: CreateProject,
    options?: { idempotencyKey?: string | undefined },
  ): { value: Project; repeated: boolean };
  /** Changes the quota of a project, by id or name. Needs an admin. */
  update(principal: Principal, ref: string, changes: UpdateProject): Project;
  /**
   * Removes a project by id or name and revokes its keys. Needs an admin. A project that is gone is removed
   * already. Rejects `failed_precondition` for the caller's own, and while it has anything but keys.
   */
  remove(principal: Principal, ref: string): void;
  /** What a project takes of its quotas. Default: the principal's own. */
  usage(principal: Principal, ref?: string): QuotaUsage;
  /**
   * Revokes every token and signed address of a project: access tokens, traffic tokens, tokens of private
   * ports, upload links. API keys stay valid, and open connections stay open.
   */
  revokeTokens(principal: Principal, ref: string): void;
}

export interface ProjectVerbParts {
  projects: ProjectRecords;
  keys: Pick<KeyRecords, 'list' | 'revoke'>;
  quota: Pick<QuotaLedger, 'usage' | 'used' | 'limit'>;
  epochs: Pick<TokenEpochs, 'revoke'>;
  events: Pick<EventLog, 'append'>;
  idempotency: Idempotency;
}

export function projectVerbs({
  projects,
  keys,
  quota,
  epochs,
  events,
  idempotency,
}: ProjectVerbParts): ProjectVerbs {
  /** By id or name. Throws `not_found` for a project of another tenant, too. */
  function find(principal: Principal, ref: string): Project {
    const project = projects.get(ref) ?? projects.byName(ref);
    if (project && (principal.role === 'admin' || project.id === principal.project)) return project;
    throw new CayError('not_found', `Project "${ref}" does not exist`);
  }

  return {
    list: (principal) =>
      projects.list().filter(({ id }) => principal.role === 'admin' || id === principal.project),
    create(principal, request, { idempotencyKey } = {}) {
      requireAdmin(principal);
      return idempotency.once<Project>(
        { project: principal.project, key: idempotencyKey, request: { createProject: request } },
        {
          make() {
            const made = projects.create(request.name, request.quota);
            const data = { name: made.name };
            events.append({ type: 'project.created', project: made.id, key: principal.key, data });
            return { id: made.id, value: made };
          },
          again: (id) => projects.get(id),
        },
      );
    },
    update(principal, ref, changes) {
      requireAdmin(principal);
      const { id } = find(principal, ref);
      const updated = projects.setQuota(id, changes.quota);
      const data = { quota: updated.quota };
      events.append({ type: 'project.updated', project: id, key: principal.key, data });
      return updated;
    },
    remove(principal, ref) {
      requireAdmin(principal);
      const project = projects.get(ref) ?? projects.byName(ref);
      if (!project) return;
      if (project.id === principal.project)
        throw new CayError('failed_precondition', `Cannot remove project "${project.name}": it is your own`, {
          hint: 'use an admin key of another project',
        });
      projects.requireEmpty(project.id);
      // The records of keys remember those that were used, so each key is revoked by itself.
      for (const { id } of keys.list(project.id)) keys.revoke(id);
      projects.remove(project.id);
      const data = { id: project.id, name: project.name };
      events.append({ type: 'project.removed', project: principal.project, key: principal.key, data });
    },
    usage(principal, ref = principal.project) {
      const { id, effectiveQuota } = find(principal, ref);
      return usageOf(id, effectiveQuota, quota);
    },
    revokeTokens(principal, ref) {
      const { id } = find(principal, ref);
      epochs.revoke(id);
      events.append({ type: 'project.tokens_revoked', project: id, key: principal.key });
    },
  };
}

/** Sums of sandboxes' limits are counted apart from what is counted by source. */
export function usageOf(
  project: string,
  limits: Quota,
  quota: Pick<QuotaLedger, 'usage' | 'used'>,
): QuotaUsage {
  const sums: Partial<Record<keyof Quota, number>> = quota.usage(project);
  const usage = {} as QuotaUsage;
  for (const key of Object.keys(limits) as (keyof Quota)[])
    usage[key] = { used: sums[key] ?? quota.used(project, key).used, limit: limits[key] };
  return usage;
}
