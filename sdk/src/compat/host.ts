/**
 * @module Cay in the words of flex-agent-runtime's sandbox host service: sessions in which tools are executed
 * turn by turn. A session is a sandbox, and its id is the sandbox's name. Written on the public API alone.
 */
import { isCayError } from '../protocol/error.ts';
import type { Health, Sandbox as SandboxInfo, Snapshot, ToolContent } from '../protocol/index.ts';
import { Sandbox } from '../sandbox.ts';
import { connect, type ConnectOptions } from '../transport.ts';
import { sandboxControl, type SandboxControl } from './control.ts';

export interface SessionInfo {
  sessionId: string;
  state: SandboxInfo['state'];
  turnCount: number;
  labels: Record<string, string>;
  created: Date;
}

export interface CreateSessionRequest {
  sessionId: string;
  /** A snapshot to begin from. */
  baseSnapshot?: string;
  /** Bytes of disk. */
  quota?: number;
  labels?: Record<string, string>;
}

export interface ExecuteToolRequest {
  sessionId: string;
  toolName: string;
  /** One id runs once, however often it is sent. */
  toolCallId?: string;
  params: Record<string, unknown>;
  /** Whether a snapshot is taken after the call. */
  snapshot?: boolean;
  onProgress?: (text: string) => void;
}

export interface ExecuteToolResponse {
  content: string;
  contentBlocks: ToolContent[];
  isError: boolean;
  exitCode: number | null;
  durationMs: number;
  /** 1 was answered without a process, 2 ran one. */
  tier: 1 | 2;
  snapshotId?: string;
}

export interface SnapshotResult {
  snapshotId: string;
  turnNumber: number | null;
  spaceUsed: number | null;
}

export interface SnapshotEntry extends SnapshotResult {
  name: string | null;
  isTurnSnapshot: boolean;
}

export type HostErrorName =
  | 'ErrSessionNotFound'
  | 'ErrSessionExists'
  | 'ErrMaxSessionsReached'
  | 'ErrInvalidState'
  | 'ErrToolsInFlight'
  | 'ErrRollbackInProgress'
  | 'ErrSnapshotsNotAvailable';

export interface SandboxHost {
  createSession(request: CreateSessionRequest): Promise<SessionInfo>;
  getSession(sessionId: string): Promise<SessionInfo>;
  listSessions(): Promise<SessionInfo[]>;
  destroySession(sessionId: string): Promise<void>;
  executeTool(request: ExecuteToolRequest): Promise<ExecuteToolResponse>;
  /** Waits for running tools, and keeps what the session is under the next number. */
  turnComplete(sessionId: string): Promise<SnapshotResult>;
  createSnapshot(sessionId: string, name: string): Promise<SnapshotResult>;
  listSnapshots(sessionId: string): Promise<SnapshotEntry[]>;
  /** What was there becomes a snapshot first, so nothing is destroyed. */
  rollbackSession(sessionId: string, to: string | number): Promise<SessionInfo>;
  /** Waits for running tools before. The next call that needs the session wakes it. */
  pauseSession(sessionId: string, drainTimeoutMs?: number): Promise<SessionInfo>;
  resumeSession(sessionId: string): Promise<SessionInfo>;
  launchProcess: SandboxControl['launchProcess'];
  killProcess: SandboxControl['killProcess'];
  getProcessStatus: SandboxControl['getProcessStatus'];
  healthCheck(): Promise<Health>;
  capabilities: SandboxControl['capabilities'];
}

const USUAL_DRAIN_MS = 30_000;
const SESSION = 'session';

export function sandboxHost(options: ConnectOptions = {}): SandboxHost {
  const find = (id: string) => Sandbox.connect(id, options);
  const { launchProcess, killProcess, getProcessStatus, capabilities } = sandboxControl(options);

  return {
    launchProcess,
    killProcess,
    getProcessStatus,
    capabilities,
    async createSession({ sessionId, baseSnapshot, quota, labels }) {
      const { info } = await Sandbox.create(
        {
          name: sessionId,
          labels: { ...labels, [SESSION]: sessionId },
          ...(baseSnapshot !== undefined && { snapshot: baseSnapshot as `snap_${string}` }),
          ...(quota !== undefined && { limits: { diskBytes: quota } }),
        },
        options,
      );
      return sessionOf(info);
    },
    getSession: async (id) => sessionOf((await find(id)).info),
    async listSessions() {
      const found: SessionInfo[] = [];
      for await (const { info } of Sandbox.list(options))
        if (info.labels[SESSION] !== undefined) found.push(sessionOf(info));
      return found;
    },
    async destroySession(id) {
      await connect(options).json('DELETE', `/v1/sandboxes/${encodeURIComponent(id)}`);
    },
    async executeTool({ sessionId, toolName, toolCallId, params, snapshot, onProgress }) {
      const { tools } = await find(sessionId);
      for await (const event of tools.stream(toolName, params, { toolCallId, snapshot })) {
        if (event.type === 'progress') onProgress?.(event.text);
        if (event.type !== 'result') continue;
        const { content, isError, exitCode = null, durationMs, tier, snapshot: taken } = event.result;
        const text = content.map((block) => (block.type === 'text' ? block.text : '')).join('');
        return {
          content: text,
          contentBlocks: content,
          isError,
          exitCode,
          durationMs,
          tier,
          ...(taken !== undefined && { snapshotId: taken }),
        };
      }
      throw new Error(`The stream of tool "${toolName}" ended without a result`);
    },
    turnComplete: async (id) => resultOf(await (await find(id)).turn()),
    createSnapshot: async (id, name) => resultOf(await (await find(id)).snapshot({ name })),
    async listSnapshots(id) {
      const found: SnapshotEntry[] = [];
      for await (const snapshot of (await find(id)).snapshots())
        found.push({
          ...resultOf(snapshot),
          name: snapshot.name,
          isTurnSnapshot: snapshot.turn !== null,
        });
      return found;
    },
    rollbackSession: async (id, to) => sessionOf((await (await find(id)).rollback(to)).sandbox),
    pauseSession: async (id, waitMs = USUAL_DRAIN_MS) => sessionOf(await (await find(id)).pause({ waitMs })),
    resumeSession: async (id) => sessionOf(await (await find(id)).resume()),
    healthCheck: () => connect(options).json('GET', '/v1/health'),
  };
}

/** What the host service calls a failure; `undefined` for one that it has no name for. */
export function hostErrorName(error: unknown): HostErrorName | undefined {
  if (!isCayError(error)) return undefined;
  if (error.details['reason'] === 'tools_in_flight') return 'ErrToolsInFlight';
  switch (error.code) {
    case 'not_found':
      return 'ErrSessionNotFound';
    case 'already_exists':
      return 'ErrSessionExists';
    case 'resource_exhausted':
      return 'ErrMaxSessionsReached';
    case 'failed_precondition':
      return 'ErrInvalidState';
    case 'conflict':
      return 'ErrRollbackInProgress';
    case 'unsupported':
      return 'ErrSnapshotsNotAvailable';
    default:
      return undefined;
  }
}

function sessionOf({ id, name, state, turn, labels, createdAtMs }: SandboxInfo): SessionInfo {
  const { [SESSION]: _, ...rest } = labels;
  return { sessionId: name ?? id, state, turnCount: turn, labels: rest, created: new Date(createdAtMs) };
}

function resultOf({ id, turn, bytes }: Snapshot): SnapshotResult {
  return { snapshotId: id, turnNumber: turn, spaceUsed: bytes };
}
