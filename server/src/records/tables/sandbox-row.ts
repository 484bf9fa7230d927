/** Rows of the table `sandboxes`, and how they are stored. */
import {
  IdlePolicySchema,
  RetentionSchema,
  type IdlePolicy,
  type Limits,
  type NetworkPolicy,
  type OnBoot,
  type OnTimeout,
  type Pause,
  type Retention,
  type SandboxId,
  type SandboxSpec,
  type SandboxState,
  type SnapshotId,
} from '@cay/sdk/protocol';

export interface PortRecord {
  port: number;
  visibility: 'private' | 'public';
}

/** What a sandbox that is being made starts from, if not from a template. */
export interface Origin {
  snapshot: SnapshotId;
  memory: boolean;
  /** Whether it is to run when it is made. */
  start: boolean;
}

/** A change of several steps that is under way: what a server that was killed finishes. */
export interface RollbackOperation {
  kind: 'rollback';
  to: SnapshotId;
  memory: boolean;
  kept: SnapshotId;
}

export interface ResizeOperation {
  kind: 'resize';
  /** Those that change, as they will be. */
  limits: Partial<Pick<Limits, 'cpus' | 'memoryBytes' | 'pids' | 'diskBytes'>>;
}

export interface MoveOperation {
  kind: 'move';
  /** The platform that it is copied to. */
  to: string;
  /** The snapshot of what it is. */
  snapshot: SnapshotId;
}

export type SandboxOperation = RollbackOperation | ResizeOperation | MoveOperation;

/** A sandbox as the control plane records it. */
export interface SandboxRow {
  id: SandboxId;
  project: string;
  name: string | null;
  state: SandboxState;
  reason: string | null;
  message: string | null;
  backend: string;
  runtime: string | null;
  spec: SandboxSpec;
  labels: Record<string, string>;
  ports: PortRecord[];
  timeoutMs: number | null;
  onTimeout: OnTimeout;
  expiresAtMs: number | null;
  incarnation: number;
  /** What the platform calls the last incarnation that ran. */
  uid: string | null;
  createdAtMs: number;
  startedAtMs: number | null;
  pausedAs: Pause | null;
  /** Null if it has no policy at all: those are never looked at. */
  idle: IdlePolicy | null;
  leaseUntilMs: number | null;
  usedAtMs: number | null;
  /** Null keeps everything. */
  retention: Retention | null;
  onBoot: OnBoot;
  base: SnapshotId | null;
  turn: number;
  origin: Origin | null;
  operation: SandboxOperation | null;
  /** How large its memory on disk was when it was hibernated last. */
  imageBytes: number | null;
  /** What it may reach. Null, in records of an earlier version, is nothing. */
  network: NetworkPolicy | null;
  /** What the template that it was made from lets it reach at most. Null is no bound. */
  templateNetwork: NetworkPolicy | null;
  /** The named networks that it is in. */
  networks: string[];
}

export interface StoredSandbox {
  id: string;
  project: string;
  name: string | null;
  state: string;
  reason: string | null;
  message: string | null;
  backend: string;
  runtime: string | null;
  spec: string;
  labels: string;
  ports: string;
  timeout_ms: number | null;
  on_timeout: string;
  expires_at: number | null;
  incarnation: number;
  uid: string | null;
  created_at: number;
  started_at: number | null;
  paused_as: string | null;
  idle: string | null;
  lease_until: number | null;
  used_at: number | null;
  retention: string | null;
  on_boot: string;
  base: string | null;
  turn: number;
  origin: string | null;
  deed: string | null;
  image_bytes: number | null;
  network: string | null;
  template_network: string | null;
  networks: string | null;
}

export interface SandboxQuery {
  project?: string;
  state?: SandboxState;
  labels?: Record<string, string>;
  /** Rows after this one, newest first. */
  after?: { createdAtMs: number; id: string };
  limit?: number;
}

export interface Usage {
  sandboxes: number;
  cpus: number;
  memoryBytes: number;
  diskBytes: number;
  pids: number;
}

export const SANDBOX_COLUMNS = {
  name: 'name',
  state: 'state',
  reason: 'reason',
  message: 'message',
  backend: 'backend',
  runtime: 'runtime',
  spec: 'spec',
  labels: 'labels',
  ports: 'ports',
  timeoutMs: 'timeout_ms',
  onTimeout: 'on_timeout',
  expiresAtMs: 'expires_at',
  incarnation: 'incarnation',
  uid: 'uid',
  startedAtMs: 'started_at',
  pausedAs: 'paused_as',
  idle: 'idle',
  leaseUntilMs: 'lease_until',
  usedAtMs: 'used_at',
  retention: 'retention',
  onBoot: 'on_boot',
  base: 'base',
  turn: 'turn',
  origin: 'origin',
  operation: 'deed',
  imageBytes: 'image_bytes',
  network: 'network',
  templateNetwork: 'template_network',
  networks: 'networks',
} as const;

export const SANDBOX_INSERTED = {
  id: 'id',
  project: 'project',
  createdAtMs: 'created_at',
  ...SANDBOX_COLUMNS,
} as const;

export function storedValue(value: unknown): string | number | null {
  if (typeof value === 'boolean') return value ? 1 : 0;
  return typeof value === 'object' && value !== null
    ? JSON.stringify(value)
    : (value as string | number | null);
}

export function parseSandbox(
  row: StoredSandbox,
  spec: SandboxSpec,
  { network, templateNetwork }: Pick<SandboxRow, 'network' | 'templateNetwork'>,
): SandboxRow {
  return {
    id: row.id as SandboxId,
    project: row.project,
    name: row.name,
    state: row.state as SandboxState,
    reason: row.reason,
    message: row.message,
    backend: row.backend,
    runtime: row.runtime,
    spec,
    labels: JSON.parse(row.labels) as Record<string, string>,
    ports: JSON.parse(row.ports) as PortRecord[],
    timeoutMs: row.timeout_ms,
    onTimeout: row.on_timeout as OnTimeout,
    expiresAtMs: row.expires_at,
    incarnation: row.incarnation,
    uid: row.uid,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    pausedAs: row.paused_as as Pause | null,
    idle: json<IdlePolicy>(row.idle),
    leaseUntilMs: row.lease_until,
    usedAtMs: row.used_at,
    retention: json<Retention>(row.retention),
    onBoot: row.on_boot as OnBoot,
    base: row.base as SnapshotId | null,
    turn: row.turn,
    origin: json<Origin>(row.origin),
    operation: json<SandboxOperation>(row.deed),
    imageBytes: row.image_bytes,
    network,
    templateNetwork,
    networks: json<string[]>(row.networks) ?? [],
  };
}

function json<T>(text: string | null): T | null {
  return text === null ? null : (JSON.parse(text) as T);
}

/** A policy as it is recorded: one that never does anything is none. */
export function recorded<T extends IdlePolicy | Retention>(policy: T): T | null {
  return Object.values(policy).some((bound) => bound !== null) ? policy : null;
}

export const NO_IDLE_POLICY: IdlePolicy = IdlePolicySchema.parse({});
export const NO_RETENTION: Retention = RetentionSchema.parse({});
