/**
 * A template is what a sandbox is made from: one of the backend (`base`), or a name that the project gave to
 * a snapshot. How templates are built is in `builds/build.ts`.
 *
 * *Who calls.* The REST API and the E2B API, once for each request; builds, for the names that they save.
 *
 * *Concurrency.* Any verbs may run at once. Whether a name is taken is decided in the transaction that saves
 * it.
 *
 * *Errors.* `not_found` for a snapshot of another project, `already_exists` for a name that is taken,
 * `resource_exhausted` beyond the project's quota.
 *
 * *Cost.* One transaction. A snapshot that has a name is kept, and counts for the project.
 *
 *     const { id } = await control.snapshot(me, 'box', { name: 'ready' });
 *     await control.saveTemplate(me, 'mine', { snapshot: id, replace: false });
 *     await control.create(me, CreateSandboxSchema.parse({ template: 'mine' }));
 *     await control.removeTemplate(me, 'mine');                // its sandboxes stay
 */
import type { SaveTemplate, Template } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface TemplateVerbs {
  /** Rejects `already_exists` for a name that is taken, unless `replace` is set. */
  saveTemplate(
    principal: Principal,
    name: string,
    request: SaveTemplate,
    options?: {
      /** A template that is replaced keeps its network policy if the request has none. */
      keepNetwork?: boolean;
    },
  ): Promise<Template>;
  /** The backend's templates, then the project's own. */
  templates(principal: Principal): Promise<Template[]>;
  /**
   * Succeeds if the template does not exist. Its snapshot stays, unless it is a turn of a sandbox that was
   * removed.
   */
  removeTemplate(principal: Principal, name: string): Promise<void>;
}
