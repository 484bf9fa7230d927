import type { SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../backends/backend.ts';
import type { BucketOpening } from '../bucket-mounts/bucket-mounts.ts';
import type { StartedEgress } from '../egress/start-egress.ts';
import type { Policy } from '../policy/policy.ts';
import type { QuotaBounds } from '../policy/quota-bounds.ts';
import type { LeaseHolder } from '../records/leases/lease-holder.ts';
import type { Records } from '../records/records.ts';
import type { Store } from '../storage/store.ts';
import type { PressureSettings } from './capacity/pressure.ts';
import type { WebhooksOptions } from './events/webhooks/webhooks.ts';

export interface ControlOptions {
  backend: Backend;
  /** Closed with the control plane. */
  records: Records;
  /**
   * Keeps other servers on the same database from changing a sandbox that this one changes. Not needed where
   * no other server can open the records.
   */
  leases?: LeaseHolder;
  /** The operator's defaults and maxima of quotas. Default: none. */
  quotaBounds?: QuotaBounds;
  /** The URL of a sandbox's port, as the API shows it. */
  previewUrl(id: SandboxId, port: number): string;
  /** The store of archived sandboxes. Without it none is archived. Closed with the control plane. */
  archives?: Store;
  /** Endpoints of buckets, as `host` or `host:port`, that may be in private networks or without TLS. */
  bucketEndpoints?: readonly string[];
  /** How often sandboxes with an idle policy are checked. Default 2,000. */
  idleLookMs?: number;
  /** What carries connections out of sandboxes. Without it they reach nothing. */
  egress?: StartedEgress;
  /** Connects the mounts of the backend with the control plane, which opens buckets for them. */
  buckets?: BucketOpening;
  /** What the operator allows callers to ask for. */
  policy?: Policy;
  /** Where the server writes records, uploads and logs. Its free space is measured too. */
  dataDir?: string;
  /** How full the machine may become, and whether unused sandboxes are paused to make room. */
  pressure?: Partial<PressureSettings>;
  /** How often records are compared with what the backend has. Default 60,000. */
  reconcileMs?: number;
  /** How long a sandbox must be unused before it is paused to make room. Default 30,000. */
  reclaimUnusedMs?: number;
  /**
   * Where command logs, files for template builds, enforcement reports and the history of stats are kept.
   * Without a directory there are no reports and there is no history.
   */
  directories: { logs: string; buildFiles: string; enforcement?: string; stats?: string };
  /** How often what sandboxes use is read for the history. Default 15,000. */
  statsEveryMs?: number;
  /** The version of the server, for reports. */
  version?: string;

  webhooks?: Pick<WebhooksOptions, 'allowPrivate' | 'pace'>;
  /** Makes an archive of the records; see `OperatorVerbs.backup`. Without it backups are refused. */
  takeBackup?(options: { signal: AbortSignal; withKey: boolean }): Promise<AsyncIterable<Uint8Array>>;
  now?(): number;
  /** Milliseconds from any origin, without jumps. Default: the clock of the process. */
  monotonic?(): number;
  /** Called when the template of the code interpreter was made, which its first caller waited for. */
  onTemplateMade?(project: string, ms: number): void;
  /** `part` is the part of the control plane that failed. */
  onError?(error: unknown, part: string): void;
}
