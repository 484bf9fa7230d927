/**
 * @module Cay in the words of Paperclip's `SandboxOrchestrator`: a sandbox is claimed for one run of a
 * command, watched, read and released. Written on the public API alone.
 *
 *     const orchestrator = sandboxOrchestrator();
 *     const { id } = await orchestrator.claim({ cmd: ['npm', 'test'] });
 *     await orchestrator.waitForCompletion(id, { timeoutMs: 600_000 });
 */
import { CayError } from '../protocol/error.ts';
import type { CreateSandboxInput, Sandbox as SandboxInfo, SandboxStatus } from '../protocol/index.ts';
import { Sandbox } from '../sandbox.ts';
import type { ConnectOptions } from '../transport.ts';

export type Phase = 'Pending' | 'Running' | 'Succeeded' | 'Failed';

export interface OrchestratorStatus {
  phase: Phase;
  /** The command has ended, or nothing of the sandbox goes on by itself. */
  complete: boolean;
  active: number;
  succeeded: number;
  failed: number;
  reason?: string;
  message?: string;
}

export interface SandboxOrchestrator {
  /** Makes a sandbox with its command. With a key, a repeated claim gives the same sandbox. */
  claim(
    manifest: CreateSandboxInput,
    options?: { idempotencyKey?: string },
  ): Promise<{ id: string; uid: string }>;
  getStatus(id: string): Promise<OrchestratorStatus>;
  /** The platform's own identifier of what runs it now; null if nothing does. */
  findPod(id: string): Promise<string | null>;
  /** The output of its command, live, to the end of the command. */
  streamLogs(
    id: string,
    onChunk: (stream: 'stdout' | 'stderr', text: string) => void | Promise<void>,
    options?: { follow?: boolean; signal?: AbortSignal },
  ): Promise<void>;
  /** Removes it with all that it has. Gone already is done. */
  release(id: string): Promise<void>;
  /** Rejects `deadline_exceeded` if the command has not ended in time; it runs on. */
  waitForCompletion(id: string, options?: { timeoutMs?: number }): Promise<OrchestratorStatus>;
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
}

const USUAL_TIMEOUT_MS = 120_000;

export function sandboxOrchestrator(options: ConnectOptions = {}): SandboxOrchestrator {
  const find = (id: string) => Sandbox.connect(id, options);
  return {
    async claim(manifest, { idempotencyKey } = {}) {
      const { id, info } = await Sandbox.create(manifest, { ...options, idempotencyKey });
      return { id, uid: info.uid ?? id };
    },
    async getStatus(id) {
      return statusOf(await (await find(id)).status());
    },
    async findPod(id) {
      const { info } = await find(id);
      return RUNS.has(info.state) ? (info.uid ?? info.id) : null;
    },
    async streamLogs(id, onChunk, { follow = true, signal } = {}) {
      for await (const event of (await find(id)).logs({ follow, signal })) {
        if (event.type === 'stdout' || event.type === 'pty') await onChunk('stdout', event.data);
        if (event.type === 'stderr') await onChunk('stderr', event.data);
      }
    },
    async release(id) {
      try {
        await (await find(id)).kill();
      } catch (error) {
        if (!(error instanceof CayError && error.code === 'not_found')) throw error;
      }
    },
    async waitForCompletion(id, { timeoutMs = USUAL_TIMEOUT_MS } = {}) {
      const { outcome, status } = await (await find(id)).wait({ timeoutMs });
      if (outcome === 'timed_out')
        throw new CayError('deadline_exceeded', `Sandbox "${id}" has not completed in ${timeoutMs} ms`, {
          hint: 'it runs on: wait again, or release it',
        });
      return statusOf(status);
    },
    async pause(id) {
      await (await find(id)).pause();
    },
    async resume(id) {
      await (await find(id)).resume();
    },
  };
}

const RUNS = new Set<SandboxInfo['state']>(['active', 'paused']);

function statusOf(status: SandboxStatus): OrchestratorStatus {
  const { complete, active, succeeded, failed, reason, message } = status;
  return {
    phase: phaseOf(status),
    complete,
    active,
    succeeded,
    failed,
    ...(reason !== null && { reason }),
    ...(message !== null && { message }),
  };
}

function phaseOf({ end, phase }: SandboxStatus): Phase {
  if (end !== undefined) return end.kind === 'exited' && end.exitCode === 0 ? 'Succeeded' : 'Failed';
  if (phase === 'failed') return 'Failed';
  return phase === 'active' || phase === 'paused' ? 'Running' : 'Pending';
}
