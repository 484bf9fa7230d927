/**
 * @module Cay in the words of kagent's `AsyncBackend`, for programs that reconcile: every call is one step
 * that can be repeated. Written on the public API alone.
 */
import { isCayError } from '../protocol/error.ts';
import type { CreateSandboxInput, ExecResult } from '../protocol/index.ts';
import { Sandbox } from '../sandbox.ts';
import type { Command } from '../sandbox-commands.ts';
import { connect, type ConnectOptions } from '../transport.ts';

export interface Handle {
  id: string;
}

/** `Unknown` is what cannot be seen at the moment: it is no reason to act. */
export interface Condition {
  status: 'True' | 'False' | 'Unknown';
  reason: string;
  message: string;
}

export interface AsyncBackend {
  readonly name: string;
  /**
   * The sandbox of that name, made if there is none. A spec that has changed is not applied to one that
   * exists.
   */
  ensure(name: string, spec?: CreateSandboxInput): Promise<{ handle: Handle; endpoint: string }>;
  /** Whether it is ready. Never rejects. */
  getStatus(handle: Handle): Promise<Condition>;
  /** One step towards its absence; `done` when it is gone. Call it again until then. */
  delete(handle: Handle): Promise<{ done: boolean }>;
  /** Runs the bootstrap once for each generation, however often and by however many it is called. */
  onReady(handle: Handle, generation: number, bootstrap: Command): Promise<ExecResult>;
}

export function asyncBackend(options: ConnectOptions = {}): AsyncBackend {
  const transport = connect(options);
  return {
    name: 'cay',
    async ensure(name, spec = {}) {
      const { id } = await Sandbox.create({ ...spec, name, getOrCreate: true }, options);
      return { handle: { id }, endpoint: `${transport.url}/v1/sandboxes/${id}` };
    },
    async getStatus({ id }) {
      try {
        const { phase, reason, message } = await (await Sandbox.connect(id, options)).status();
        return {
          status: phase === 'active' ? 'True' : 'False',
          reason: reason ?? REASONS[phase],
          message: message ?? '',
        };
      } catch (error) {
        if (isCayError(error, 'not_found'))
          return { status: 'False', reason: 'SandboxNotFound', message: error.message };
        return { status: 'Unknown', reason: 'SandboxGetFailed', message: (error as Error).message };
      }
    },
    async delete({ id }) {
      try {
        const sandbox = await Sandbox.connect(id, options);
        if (sandbox.info.state !== 'destroying') await sandbox.kill({ wait: false });
        return { done: false };
      } catch (error) {
        if (isCayError(error, 'not_found')) return { done: true };
        throw error;
      }
    },
    async onReady({ id }, generation, bootstrap) {
      const sandbox = await Sandbox.connect(id, options);
      return sandbox.exec(bootstrap, { idempotencyKey: `bootstrap-${id}-${generation}` });
    },
  };
}

const REASONS = {
  creating: 'SandboxCreating',
  active: 'SandboxReady',
  paused: 'SandboxPaused',
  stopped: 'SandboxStopped',
  failed: 'SandboxFailed',
  destroying: 'SandboxDestroying',
} as const;
