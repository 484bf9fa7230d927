/**
 * What the MCP server needs of Cay. There are two hosts: the control plane, for `/mcp`, and a client of the
 * API, for `cay mcp`. Both act for one project. Every verb rejects with a `CayError`.
 */
import type {
  CreateSandboxInput,
  ExposedPort,
  FileChange,
  RolledBack,
  Sandbox,
  Snapshot,
  SnapshotRef,
  ToolCallInput,
  ToolResult,
} from '@cay/sdk/protocol';

export interface McpCall {
  signal: AbortSignal;
  onProgress?(progress: { bytes: number; text: string }): void;
}

export interface McpHost {
  create(request: CreateSandboxInput): Promise<Sandbox>;
  /** The newest ones of the project. */
  list(): Promise<Sandbox[]>;
  stop(ref: string): Promise<Sandbox>;
  tool(ref: string, name: string, call: ToolCallInput, options: McpCall): Promise<ToolResult>;
  expose(ref: string, port: number, visibility: ExposedPort['visibility']): Promise<ExposedPort>;
  checkpoint(ref: string, name: string | undefined): Promise<Snapshot>;
  diff(
    ref: string,
    sides: { from: SnapshotRef; to: SnapshotRef },
    options: McpCall,
  ): AsyncIterable<FileChange>;
  rollback(ref: string, to: SnapshotRef, options: { force: boolean }): Promise<RolledBack>;
  fork(ref: string, count: number): Promise<Sandbox[]>;
  /** The content of a file, at most `most` bytes of it. */
  file(ref: string, path: string, options: { most: number; signal: AbortSignal }): Promise<Uint8Array>;
}
