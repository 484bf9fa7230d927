import { bucketTable, type BucketRecords } from './buckets.ts';
import { buildTable, type BuildRecords } from './builds.ts';
import { buildStepTable, type BuildStepRecords } from './build-steps.ts';
import { commandKeyTable, type CommandKeyRecords } from './command-keys.ts';
import { commandTable, type CommandRecords } from './commands.ts';
import { forkTable, type ForkRecords } from './forks.ts';
import { hostPortTable, type HostPortRecords } from './host-ports.ts';
import { idempotencyTable, type IdempotencyRecords } from './idempotency.ts';
import { keyTable, type KeyRecords } from './keys.ts';
import { leaseTable, type LeaseRecords } from './leases.ts';
import { platformTable, type PlatformRecords } from './platforms.ts';
import { projectTable, type ProjectRecords } from './projects.ts';
import { sandboxTable, type SandboxRecords } from './sandboxes.ts';
import { secretTable, type SecretRecords } from './secrets.ts';
import { sharedFileTable, type SharedFileRecords } from './shared-files.ts';
import { snapshotTable, type SnapshotRecords } from './snapshots.ts';
import { storedSecretTable, type StoredSecretRecords } from './stored-secrets.ts';
import type { TableContext } from './table-context.ts';
import { templateTable, type TemplateRecords } from './templates.ts';
import { tokenEpochTable, type TokenEpochRecords } from './token-epochs.ts';
import { volumeTable, type VolumeRecords } from './volumes.ts';
import { webhookTable, type WebhookRecords } from './webhooks.ts';

/** All tables but the events. */
export interface Tables {
  readonly projects: ProjectRecords;
  readonly keys: KeyRecords;
  readonly tokenEpochs: TokenEpochRecords;
  readonly secrets: SecretRecords;
  readonly storedSecrets: StoredSecretRecords;
  readonly sandboxes: SandboxRecords;
  readonly leases: LeaseRecords;
  readonly snapshots: SnapshotRecords;
  readonly sharedFiles: SharedFileRecords;
  readonly forks: ForkRecords;
  readonly templates: TemplateRecords;
  readonly builds: BuildRecords;
  readonly buildSteps: BuildStepRecords;
  readonly commands: CommandRecords;
  readonly commandKeys: CommandKeyRecords;
  readonly idempotency: IdempotencyRecords;
  readonly webhooks: WebhookRecords;
  readonly volumes: VolumeRecords;
  readonly buckets: BucketRecords;
  readonly hostPorts: HostPortRecords;
  readonly platforms: PlatformRecords;
}

const FACTORIES = {
  projects: projectTable,
  keys: keyTable,
  tokenEpochs: tokenEpochTable,
  secrets: secretTable,
  storedSecrets: storedSecretTable,
  sandboxes: sandboxTable,
  leases: leaseTable,
  snapshots: snapshotTable,
  sharedFiles: sharedFileTable,
  forks: forkTable,
  templates: templateTable,
  builds: buildTable,
  buildSteps: buildStepTable,
  commands: commandTable,
  commandKeys: commandKeyTable,
  idempotency: idempotencyTable,
  webhooks: webhookTable,
  volumes: volumeTable,
  buckets: bucketTable,
  hostPorts: hostPortTable,
  platforms: platformTable,
} as const satisfies { [Name in keyof Tables]: (context: TableContext) => Tables[Name] };

/** The tables on a connection or in a transaction. Each is built when it is first used: most are not. */
class LazyTables {
  readonly context: TableContext;
  constructor(context: TableContext) {
    this.context = context;
  }
}

for (const [name, factory] of Object.entries(FACTORIES)) {
  Object.defineProperty(LazyTables.prototype, name, {
    get(this: LazyTables) {
      const table = factory(this.context);
      Object.defineProperty(this, name, { value: table });
      return table;
    },
  });
}

export function buildTables(context: TableContext): Tables {
  return new LazyTables(context) as unknown as Tables;
}
