/**
 * A template is what a sandbox is made of: one that the backend brings (`base`), or a name that the project
 * gave to a snapshot.
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
