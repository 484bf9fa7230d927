import {
  CayError,
  type CreateProjectSchema,
  type Project,
  type Quota,
  type UpdateProject,
} from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { Records } from '../../records/records.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { Networks } from '../egress/networks.ts';
import { requireSecrets } from '../secrets/require-secrets.ts';
import type { Idempotency } from './idempotency.ts';
import { requireAdmin, type Principal } from './principal.ts';
import type { Projects } from './projects.ts';
import type { QuotaLedger } from './quota-ledger.ts';

export type CreateProject = z.output<typeof CreateProjectSchema>;

/** What a project takes of each quota. A limit of null is none. */
export type QuotaUsage = Record<keyof Quota, { used: number; limit: number | null }>;

export interface ProjectVerbs {
  /** Oldest first. An admin sees all, others their own. */
  list(principal: Principal): Promise<Project[]>;
  /** Needs an admin. Rejects `already_exists` for a name that is taken. */
  create(
    principal: Principal,
    request: CreateProject,
    options?: { idempotencyKey?: string | undefined },
  ): Promise<{ value: Project; repeated: boolean }>;
  /**
   * Changes the quota or the network policy of a project, by id or name. Needs an admin. A policy holds at
   * once for all its sandboxes. Rejects `invalid_argument` if a rule cannot be read.
   */
  update(principal: Principal, ref: string, changes: UpdateProject): Promise<Project>;
  /**
   * Removes a project by id or name and revokes its keys. Needs an admin. A project that is gone is removed
   * already. Rejects `failed_precondition` for the caller's own, and while it has anything but keys.
   */
  remove(principal: Principal, ref: string): Promise<void>;
  /** What a project takes of its quotas. Default: the principal's own. */
  usage(principal: Principal, ref?: string): Promise<QuotaUsage>;
  /**
   * Revokes every token and signed address of a project: access tokens, traffic tokens, tokens of private
   * ports, upload links. API keys stay valid, and open connections stay open.
   */
  revokeTokens(principal: Principal, ref: string): Promise<void>;
}

export interface ProjectVerbParts {
  records: Records;
  projects: Projects;
  quota: Pick<QuotaLedger, 'usage' | 'used' | 'limit'>;
  idempotency: Idempotency;
  networks: Pick<Networks, 'checked' | 'applyAll'>;
}

export function projectVerbs({
  records,
  projects,
  quota,
  idempotency,
  networks,
}: ProjectVerbParts): ProjectVerbs {
  /** By id or name. Rejects `not_found` for a project of another tenant, too. */
  async function find(on: Tables, principal: Principal, ref: string): Promise<Project> {
    const project = await projects.find(on, ref);
    if (project && (principal.role === 'admin' || project.id === principal.project)) return project;
    throw new CayError('not_found', `Project "${ref}" does not exist`);
  }

  return {
    async list(principal) {
      const all = await projects.list(records);
      return all.filter(({ id }) => principal.role === 'admin' || id === principal.project);
    },
    async create(principal, request, { idempotencyKey } = {}) {
      requireAdmin(principal);
      return idempotency.once<Project>(
        { project: principal.project, key: idempotencyKey, request: { createProject: request } },
        {
          async make(tx) {
            const made = await projects.create(tx, request.name, request.quota);
            const data = { name: made.name };
            await tx.events.append({ type: 'project.created', project: made.id, key: principal.key, data });
            return { id: made.id, value: made };
          },
          again: (tx, id) => projects.get(tx, id),
        },
      );
    },
    async update(principal, ref, changes) {
      requireAdmin(principal);
      const network = changes.network && networks.checked(changes.network);
      const updated = await records.transaction(async (tx) => {
        let project = await find(tx, principal, ref);
        const { id } = project;
        if (changes.quota) project = await projects.setQuota(tx, id, changes.quota);
        if (network) await requireSecrets(tx, id, network);
        if (network !== undefined) project = await projects.setNetwork(tx, id, network);
        const data = {
          ...(changes.quota && { quota: project.quota }),
          ...(network !== undefined && { fields: ['network'] }),
        };
        await tx.events.append({ type: 'project.updated', project: id, key: principal.key, data });
        return project;
      });
      if (network !== undefined || changes.quota) await networks.applyAll(updated.id);
      return updated;
    },
    async remove(principal, ref) {
      requireAdmin(principal);
      await records.transaction(async (tx) => {
        const project = await projects.find(tx, ref);
        if (!project) return;
        if (project.id === principal.project)
          throw new CayError(
            'failed_precondition',
            `Cannot remove project "${project.name}": it is your own`,
            { hint: 'use an admin key of another project' },
          );
        await tx.projects.remove(project.id);
        const data = { id: project.id, name: project.name };
        await tx.events.append({
          type: 'project.removed',
          project: principal.project,
          key: principal.key,
          data,
        });
      });
    },
    async usage(principal, ref = principal.project) {
      const { id, effectiveQuota } = await find(records, principal, ref);
      return usageOf(records, id, effectiveQuota, quota);
    },
    async revokeTokens(principal, ref) {
      await records.transaction(async (tx) => {
        const { id } = await find(tx, principal, ref);
        await tx.tokenEpochs.revoke(id);
        await tx.events.append({ type: 'project.tokens_revoked', project: id, key: principal.key });
      });
    },
  };
}

/** Sums of sandboxes' limits are counted apart from what is counted by source. */
export async function usageOf(
  on: Tables,
  project: string,
  limits: Quota,
  quota: Pick<QuotaLedger, 'usage' | 'used'>,
): Promise<QuotaUsage> {
  const sums: Partial<Record<keyof Quota, number>> = await quota.usage(on, project);
  const usage = {} as QuotaUsage;
  for (const key of Object.keys(limits) as (keyof Quota)[])
    usage[key] = { used: sums[key] ?? (await quota.used(on, project, key)).used, limit: limits[key] };
  return usage;
}
