/**
 * @module Cay in the words of flex-agent-runtime's `SandboxControl`: sandboxes, their processes, and seven
 * capabilities. Written on the public API alone.
 */
import { isCayError } from '../protocol/error.ts';
import type { Capabilities, CommandInfo, Limits, PortList, Signal } from '../protocol/index.ts';
import { Sandbox } from '../sandbox.ts';
import { connect, type ConnectOptions } from '../transport.ts';
import { shellExitCode } from '../protocol/exit-code.ts';

export interface SandboxCapabilities {
  snapshots: boolean;
  rollback: boolean;
  pause: boolean;
  launchProcess: boolean;
  /** A sandbox can be put into the archive store, where it uses nothing of the machine. */
  deepPause: boolean;
  /** How many a project may have at once; null if there is no such limit. */
  concurrentSandboxes: number | null;
  /** How long one may live, in milliseconds; null if there is no such limit. */
  maxSandboxDuration: number | null;
}

export interface CreateSandboxRequest {
  labels?: Record<string, string>;
  template?: string;
  resources?: Partial<Limits>;
}

export interface CreateSandboxResponse {
  sandboxId: string;
  /** Where the server is that answers for it. */
  address: string;
  capabilities: SandboxCapabilities;
}

/** `starting` is a process whose exposed port does not listen yet. */
export type ProcessStatus = 'starting' | 'running' | 'exited';

export interface ProcessInfo {
  status: ProcessStatus;
  /** As a shell shows it. */
  exitCode?: number;
}

export interface LaunchProcessRequest {
  sandboxId: string;
  binary: string;
  args?: string[];
  env?: Record<string, string>;
  exposePort?: number;
}

export interface LaunchProcessResponse extends ProcessInfo {
  processId: string;
  /** Where its port is reached; private, so with its token. */
  address?: string;
  token?: string;
}

export interface SandboxControl {
  createSandbox(request?: CreateSandboxRequest): Promise<CreateSandboxResponse>;
  /** Gone already is done. */
  destroySandbox(sandboxId: string): Promise<void>;
  launchProcess(request: LaunchProcessRequest): Promise<LaunchProcessResponse>;
  /** SIGTERM unless another signal is named. A process that has exited is killed already. */
  killProcess(request: { sandboxId: string; processId: string; signal?: Signal }): Promise<void>;
  getProcessStatus(request: {
    sandboxId: string;
    processId: string;
    exposePort?: number;
  }): Promise<ProcessInfo>;
  pauseSandbox(sandboxId: string): Promise<void>;
  resumeSandbox(sandboxId: string): Promise<void>;
  capabilities(): Promise<SandboxCapabilities>;
}

export function sandboxControl(options: ConnectOptions = {}): SandboxControl {
  const transport = connect(options);
  const find = (id: string) => Sandbox.connect(id, options);

  async function capabilities(project?: string): Promise<SandboxCapabilities> {
    const { abilities, policy } = await transport.json<Capabilities>('GET', '/v1/capabilities');
    const usage =
      project === undefined
        ? undefined
        : await transport.json<Record<string, { limit: number | null }>>(
            'GET',
            `/v1/projects/${encodeURIComponent(project)}/usage`,
          );
    return {
      snapshots: abilities.snapshots,
      rollback: abilities.snapshots,
      pause: abilities.freeze || abilities.suspend || abilities.memorySnapshots,
      launchProcess: true,
      deepPause: abilities.snapshots,
      concurrentSandboxes: usage?.['sandboxes']?.limit ?? null,
      maxSandboxDuration: policy?.maxima.timeoutMs ?? null,
    };
  }

  async function listens(id: string, port: number): Promise<boolean> {
    const { listening } = await transport.json<PortList>('GET', `/v1/sandboxes/${id}/ports`);
    return listening.some((one) => one.port === port);
  }

  async function standing(id: string, command: CommandInfo, port?: number): Promise<ProcessInfo> {
    if (command.end !== undefined) return { status: 'exited', exitCode: shellExitCode(command.end) };
    const ready = port === undefined || (await listens(id, port));
    return { status: ready ? 'running' : 'starting' };
  }

  return {
    async createSandbox({ labels, template, resources } = {}) {
      const { id, info } = await Sandbox.create({ labels, template, limits: resources }, options);
      return {
        sandboxId: id,
        address: new URL(transport.url).host,
        capabilities: await capabilities(info.project),
      };
    },
    async destroySandbox(id) {
      await transport.json('DELETE', `/v1/sandboxes/${encodeURIComponent(id)}`);
    },
    async launchProcess({ sandboxId, binary, args = [], env, exposePort }) {
      const sandbox = await find(sandboxId);
      const { command, port } = await sandbox.launch([binary, ...args], { env, expose: exposePort });
      return {
        processId: command.id,
        ...(await standing(sandbox.id, command, exposePort)),
        ...(port && { address: port.url, token: port.token }),
      };
    },
    async killProcess({ sandboxId, processId, signal = 'SIGTERM' }) {
      const sandbox = await find(sandboxId);
      if ((await sandbox.command(processId)).end !== undefined) return;
      try {
        await sandbox.signal(processId, signal);
      } catch (error) {
        // It has ended in the meantime.
        if (!isCayError(error, 'failed_precondition') && !isCayError(error, 'not_found')) throw error;
      }
    },
    async getProcessStatus({ sandboxId, processId, exposePort }) {
      const sandbox = await find(sandboxId);
      return standing(sandbox.id, await sandbox.command(processId), exposePort);
    },
    async pauseSandbox(id) {
      await (await find(id)).pause();
    },
    async resumeSandbox(id) {
      await (await find(id)).resume();
    },
    capabilities: () => capabilities(),
  };
}
