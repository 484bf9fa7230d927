/**
 * @module Cay as a provider of ComputeSDK.
 *
 *     const compute = cay({ url: 'http://127.0.0.1:7070', apiKey });
 *     const sandbox = await compute.sandbox.create();
 */
import { defineProvider } from '@computesdk/provider';
import {
  connect,
  isCayError,
  Sandbox,
  type ConnectOptions,
  type FileInfo,
  type SnapshotPage,
} from '@cay/sdk';

export interface CayConfig extends Pick<ConnectOptions, 'url' | 'apiKey'> {
  /** How long a sandbox lives, in milliseconds. Default: the server's. */
  timeout?: number;
}

const MOST_OUTPUT = 8 * 1024 * 1024;

const access = ({ url, apiKey }: CayConfig) => ({ url, apiKey });

async function found(config: CayConfig, id: string) {
  try {
    return await Sandbox.connect(id, access(config));
  } catch (error) {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  }
}

const entryOf = ({ name, type, sizeBytes, modifiedAtMs }: FileInfo) => ({
  name,
  type: type === 'directory' ? ('directory' as const) : ('file' as const),
  size: sizeBytes,
  modified: new Date(modifiedAtMs),
});

export const cay = defineProvider<Sandbox, CayConfig>({
  name: 'cay',
  methods: {
    sandbox: {
      async create(config, options) {
        const { timeout = config.timeout, envs, metadata, templateId, snapshotId, name } = options ?? {};
        const sandbox = await Sandbox.create(
          {
            name,
            env: envs,
            labels: labelsOf(metadata),
            ...(timeout !== undefined && { timeoutMs: timeout, onTimeout: 'destroy' as const }),
            ...(templateId !== undefined && { template: templateId }),
            ...(snapshotId !== undefined && { snapshot: snapshotId as `snap_${string}` }),
          },
          access(config),
        );
        return { sandbox, sandboxId: sandbox.id };
      },
      async getById(config, sandboxId) {
        const sandbox = await found(config, sandboxId);
        return sandbox ? { sandbox, sandboxId: sandbox.id } : null;
      },
      async list(config) {
        const all: { sandbox: Sandbox; sandboxId: string }[] = [];
        for await (const sandbox of Sandbox.list(access(config)))
          all.push({ sandbox, sandboxId: sandbox.id });
        return all;
      },
      async destroy(config, sandboxId) {
        await (await found(config, sandboxId))?.kill();
      },
      async runCommand(sandbox, command, options = {}) {
        const { cwd, env, timeout, background } = options;
        const given = { env, workdir: cwd, timeoutMs: timeout };
        if (background) {
          await sandbox.launch(command, given);
          return { stdout: '', stderr: '', exitCode: 0, durationMs: 0 };
        }
        const { stdout, stderr, exitCode, durationMs } = await sandbox.exec(command, {
          ...given,
          maxOutputBytes: MOST_OUTPUT,
        });
        return { stdout, stderr, exitCode, durationMs };
      },
      async streamCommand(sandbox, command, options) {
        const began = Date.now();
        const { cwd, env, timeout, onStdout, onStderr } = options;
        const held = { stdout: '', stderr: '' };
        let exitCode = 1;
        for await (const event of sandbox.execStream(command, { env, workdir: cwd, timeoutMs: timeout })) {
          if (event.type === 'end') ({ exitCode } = event);
          if (event.type !== 'stdout' && event.type !== 'stderr') continue;
          // Beyond the bound the caller has it from its listener alone.
          if (held[event.type].length < MOST_OUTPUT) held[event.type] += event.data;
          (event.type === 'stdout' ? onStdout : onStderr)?.(event.data);
        }
        return { ...held, exitCode, durationMs: Date.now() - began };
      },
      async getInfo(sandbox) {
        const { id, state, createdAtMs, timeoutMs, labels } = await sandbox.refresh();
        return {
          id,
          provider: 'cay',
          status: state === 'failed' ? 'error' : state === 'stopped' ? 'stopped' : 'running',
          createdAt: new Date(createdAtMs),
          timeout: timeoutMs ?? 0,
          metadata: labels,
        };
      },
      async getUrl(sandbox, { port }) {
        return (await sandbox.expose(port, { visibility: 'public' })).url;
      },
      getInstance: (sandbox) => sandbox,
      filesystem: {
        readFile: (sandbox, path) => sandbox.files.readText(path),
        async writeFile(sandbox, path, content) {
          await sandbox.files.write(path, content);
        },
        async mkdir(sandbox, path) {
          await sandbox.files.mkdir(path);
        },
        async readdir(sandbox, path) {
          const entries = [];
          for await (const file of sandbox.files.list(path)) entries.push(entryOf(file));
          return entries;
        },
        exists: (sandbox, path) => sandbox.files.exists(path),
        remove: (sandbox, path) => sandbox.files.remove(path, { recursive: true }),
      },
    },
    snapshot: {
      async create(config, sandboxId, options) {
        const sandbox = await Sandbox.connect(sandboxId, access(config));
        const { id, createdAtMs, name } = await sandbox.snapshot({ name: options?.name });
        return { id, provider: 'cay', createdAt: new Date(createdAtMs), metadata: { name } };
      },
      async list(config) {
        const { snapshots } = await connect(access(config)).json<SnapshotPage>('GET', '/v1/snapshots');
        return snapshots.map(({ id, createdAtMs, name }) => ({
          id,
          provider: 'cay',
          createdAt: new Date(createdAtMs),
          metadata: { name },
        }));
      },
      async delete(config, snapshotId) {
        await connect(access(config)).json('DELETE', `/v1/snapshots/${encodeURIComponent(snapshotId)}`);
      },
    },
  },
});

/** Labels are text. */
function labelsOf(metadata: Record<string, unknown> | undefined): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata ?? {}).map(([key, value]) => [key, String(value)]));
}
