import {
  createExecBackedGit,
  type SandboxEnv,
  type SandboxFs,
  type SandboxGit,
  type SandboxHandle,
  type SandboxPorts,
  type SandboxProcess,
  type SnapshotRef,
} from '@tanstack/ai-sandbox';
import { isCayError, type Sandbox } from '@cay/sdk';
import { posix } from 'node:path';
import { CAPABILITIES } from './capabilities.ts';
import { exec, spawn } from './processes.ts';

interface HandleOptions {
  id: string;
  workspaceRoot: string;
}

export class CayHandle implements SandboxHandle {
  readonly id: string;
  readonly provider = 'cay';
  readonly capabilities = CAPABILITIES;
  readonly workspaceRoot: string;
  /** The sandbox behind it, for what the framework has no words for: turns, diffs, the network. */
  readonly sandbox: Sandbox;
  readonly fs: SandboxFs;
  readonly git: SandboxGit;
  readonly process: SandboxProcess;
  readonly ports: SandboxPorts;
  readonly env: SandboxEnv;

  constructor(sandbox: Sandbox, { id, workspaceRoot }: HandleOptions) {
    this.id = id;
    this.sandbox = sandbox;
    this.workspaceRoot = workspaceRoot;
    const variables: Record<string, string> = {};
    const at = (path: string) => posix.resolve(workspaceRoot, path);
    const where = (cwd: string | undefined, env: Record<string, string> | undefined) => ({
      workdir: at(cwd ?? '.'),
      env: { ...variables, ...env },
    });
    this.fs = filesOf(sandbox, at);
    this.process = {
      exec: (command, { cwd, env, signal } = {}) => exec(sandbox, command, where(cwd, env), signal),
      spawn: (command, { cwd, env, signal } = {}) => spawn(sandbox, command, where(cwd, env), signal),
    };
    this.git = createExecBackedGit(this.process, workspaceRoot);
    this.ports = {
      async connect(port) {
        const { url, token } = await sandbox.expose(port);
        return { url, ...(token !== undefined && { token, headers: { 'x-cay-preview-token': token } }) };
      },
    };
    this.env = {
      async set(given) {
        Object.assign(variables, given);
      },
    };
  }

  /** Makes the workspace, which may be where only root can write. */
  async prepare(): Promise<void> {
    const { files, info } = this.sandbox;
    if (await files.exists(this.workspaceRoot)) return;
    try {
      await files.mkdir(this.workspaceRoot);
    } catch (error) {
      if (!isCayError(error, 'permission_denied')) throw error;
      await files.mkdir(this.workspaceRoot, { user: 'root' });
      await files.chown(this.workspaceRoot, info.user, { user: 'root' });
    }
  }

  snapshot = async (label?: string): Promise<SnapshotRef> => {
    const labels: Record<string, string> = label === undefined ? {} : { 'tanstack.label': label };
    const { id } = await this.sandbox.snapshot({ labels });
    return { id, ...(label !== undefined && { label }) };
  };

  /** Processes go on in the fork where the isolation can. */
  fork = async (): Promise<CayHandle> => {
    const [child] = await this.sandbox.fork();
    return new CayHandle(child!, { id: child!.id, workspaceRoot: this.workspaceRoot });
  };

  destroy = async (): Promise<void> => {
    await this.sandbox.kill();
  };
}

function filesOf({ files }: Sandbox, at: (path: string) => string): SandboxFs {
  return {
    read: (path) => files.readText(at(path)),
    readBytes: (path) => files.read(at(path)),
    async write(path, data) {
      await files.write(at(path), data);
    },
    async list(path) {
      const entries: { name: string; path: string; type: 'file' | 'dir' }[] = [];
      for await (const { name, type } of files.list(at(path), { depth: 1 }))
        entries.push({ name, path: posix.join(path, name), type: type === 'directory' ? 'dir' : 'file' });
      return entries;
    },
    async mkdir(path) {
      await files.mkdir(at(path));
    },
    /** What is not there is removed already. */
    async remove(path) {
      await files.remove(at(path), { recursive: true }).catch((error: unknown) => {
        if (!isCayError(error, 'not_found')) throw error;
      });
    },
    rename: (from, to) => files.move(at(from), at(to), { overwrite: true }),
    exists: (path) => files.exists(at(path)),
    async watch(path, onEvent) {
      const abort = new AbortController();
      const events = files.watch(at(path), { recursive: true, signal: abort.signal });
      const over = (async () => {
        try {
          for await (const event of events) onEvent({ type: event.type, path: event.path });
        } catch (error) {
          if (!abort.signal.aborted) throw error;
        }
      })();
      // Whoever watches learns of a lost connection by the silence; there is no other word for it here.
      over.catch(() => {});
      return {
        async stop() {
          abort.abort();
          await over.catch(() => {});
        },
      };
    },
  };
}
