import { CayError, type NetworkPolicy, type Project, type Quota, type SomeQuota } from '@cay/sdk/protocol';
import { NO_BOUNDS, effectiveQuota, requireWithin, type QuotaBounds } from '../../policy/quota-bounds.ts';
import type { ProjectRow } from '../../records/tables/projects.ts';
import type { Tables } from '../../records/tables/tables.ts';

/** Projects with the quotas that apply to them. Each verb is given the records, or a transaction. */
export interface Projects {
  get(on: Tables, id: string): Promise<Project | undefined>;
  /** By id or name. */
  find(on: Tables, ref: string): Promise<Project | undefined>;
  /** Oldest first. */
  list(on: Tables): Promise<Project[]>;
  /**
   * Rejects `already_exists` for a name that is taken, `invalid_argument` for a quota above the operator's
   * maximum.
   */
  create(on: Tables, name: string, quota?: Quota): Promise<Project>;
  /** Changes the parts that are given. Rejects as `create` does. */
  setQuota(on: Tables, id: string, quota: SomeQuota): Promise<Project>;
  setNetwork(on: Tables, id: string, network: NetworkPolicy | null): Promise<Project>;
}

/** `bounds` are the operator's defaults and maxima. */
export function openProjects(bounds: QuotaBounds = NO_BOUNDS): Projects {
  const show = (row: ProjectRow): Project => ({ ...row, effectiveQuota: effectiveQuota(row.quota, bounds) });
  return {
    async get(on, id) {
      const row = await on.projects.get(id);
      return row && show(row);
    },
    async find(on, ref) {
      const row = (await on.projects.get(ref)) ?? (await on.projects.byName(ref));
      return row && show(row);
    },
    list: async (on) => (await on.projects.list()).map(show),
    async create(on, name, quota) {
      if (await on.projects.byName(name))
        throw new CayError('already_exists', `A project named "${name}" exists already`);
      if (quota) requireWithin(quota, bounds);
      return show(await on.projects.create(name, quota));
    },
    setNetwork: async (on, id, network) => show(await on.projects.setNetwork(id, network)),
    async setQuota(on, id, quota) {
      requireWithin(quota, bounds);
      return show(await on.projects.setQuota(id, quota));
    },
  };
}
