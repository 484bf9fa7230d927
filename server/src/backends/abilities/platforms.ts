import type { SandboxId, SnapshotId } from '@cay/sdk/protocol';
import type { Backend } from '../backend.ts';

/**
 * Several backends behind one: named platforms. Each sandbox is on one platform and stays there. A spec names
 * its platform by `platform`; without it it is the default. Snapshots are on the platform of their sandbox,
 * and so are the sandboxes made from them.
 *
 * A platform may be away. Its sandboxes are then neither absent nor failed: every verb for them rejects
 * `unavailable`, and so does every verb for an id whose platform is not known. The other platforms go on. A
 * verb that the sandbox's platform lacks rejects `unsupported` with `details.platform`.
 *
 * Only `control/placement` asks for this ability.
 */
export interface Platforms {
  /** Their names, the default first. */
  readonly names: readonly string[];

  /** The platform for this name or these labels. Throws `not_found` for an unknown name. */
  choose(wish: { platform?: string; labels: Readonly<Record<string, string>> }): string;

  /**
   * The backend of one platform. Rejects `unavailable` while it cannot be opened, `not_found` for an unknown
   * name.
   */
  get(name: string): Promise<Backend>;

  /** The name of a backend that `get` gave. */
  nameOf(platform: Backend): string | undefined;

  /** Says on which platform the sandbox or snapshot of a record is, without asking the platform. */
  place(id: SandboxId | SnapshotId, platform: string): void;

  /** Whether this platform's capacity is part of what `capacity` reports. False while it is not open. */
  measures(platform: string): boolean;
}
