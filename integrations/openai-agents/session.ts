import { applyDiff, UserError, type Editor } from '@openai/agents-core';
import {
  SandboxExposedPortUnavailableError,
  WorkspacePathPolicy,
  type ExecCommandArgs,
  type ExposedPortEndpoint,
  type ListDirectoryArgs,
  type Manifest,
  type MaterializeEntryArgs,
  type ReadFileArgs,
  type SandboxArchiveLimits,
  type SandboxDirectoryEntry,
  type SandboxExecResult,
  type SandboxSession,
  type SandboxSessionLifecycleOptions,
  type SandboxSessionState,
  type ViewImageArgs,
  type WorkspaceArchiveData,
  type WorkspaceArchiveOptions,
  type WriteStdinArgs,
} from '@openai/agents-core/sandbox';
import {
  assertViewImageByteLength,
  formatExecResponse,
  imageOutputFromBytes,
  mergeManifestDelta,
  mergeManifestEntryDelta,
  mergeMaterializedEnvironment,
} from '@openai/agents-core/sandbox/internal';
import { isCayError, type Sandbox } from '@cay/sdk';
import { posix } from 'node:path';
import { bytesOfArchive, checkArchive, snapshotOf, snapshotReference } from './archive.ts';
import { asFileError, asProviderError } from './errors.ts';
import { materialize, refuseUnsupported } from './manifest.ts';
import { Processes } from './processes.ts';

export interface CaySessionState extends SandboxSessionState {
  sandboxId: string;
  environment: Record<string, string>;
  workspacePersistence: 'tar' | 'snapshot';
  configuredExposedPorts: number[];
  /** The number of the newest process. */
  lastProcess: number;
}

interface SessionParts {
  sandbox: Sandbox;
  state: CaySessionState;
  archiveLimits: SandboxArchiveLimits | null | undefined;
  /** A sandbox like this one, from a snapshot. */
  again(snapshot: string): Promise<Sandbox>;
}

export class CaySandboxSession implements SandboxSession<CaySessionState> {
  readonly state: CaySessionState;
  readonly #again: SessionParts['again'];
  #sandbox: Sandbox;
  #processes: Processes;
  #archiveLimits: SandboxArchiveLimits | null | undefined;

  constructor({ sandbox, state, archiveLimits, again }: SessionParts) {
    this.state = state;
    this.#sandbox = sandbox;
    this.#processes = new Processes(sandbox, state);
    this.#archiveLimits = archiveLimits;
    this.#again = again;
  }

  /** The sandbox behind the session, for what the framework has no words for: turns, forks, the network. */
  get sandbox(): Sandbox {
    return this.#sandbox;
  }

  /** Makes the root of the workspace, which may be where only root can write. */
  async prepare(): Promise<void> {
    const { root } = this.state.manifest;
    await asProviderError(`make the workspace "${root}"`, async () => {
      const { files, info } = this.#sandbox;
      if (await files.exists(root)) return;
      const made = await files.mkdir(root).catch((error: unknown) => {
        if (!isCayError(error, 'permission_denied')) throw error;
      });
      if (made !== undefined) return;
      await files.mkdir(root, { user: 'root' });
      await files.chown(root, info.user, { user: 'root' });
    });
  }

  async running(): Promise<boolean> {
    return this.#sandbox.refresh().then(
      ({ state }) => state === 'active' || state === 'paused',
      () => false,
    );
  }

  supportsPty(): boolean {
    return true;
  }

  setArchiveLimits(limits?: SandboxArchiveLimits | null): void {
    this.#archiveLimits = limits;
  }

  exec(args: ExecCommandArgs): Promise<SandboxExecResult> {
    const { workdir, runAs } = args;
    return asProviderError('run a command', () =>
      this.#processes.run(args, {
        workdir: this.#path(workdir),
        env: this.state.environment,
        ...(runAs !== undefined && { user: runAs }),
      }),
    );
  }

  async execCommand(args: ExecCommandArgs): Promise<string> {
    return formatExecResponse(await this.exec(args));
  }

  async writeStdin(args: WriteStdinArgs): Promise<string> {
    const result = await asProviderError('write to a process', () =>
      this.#processes.write(args.sessionId, args),
    );
    return formatExecResponse(
      result ?? {
        output: `write_stdin failed: session not found: ${args.sessionId}`,
        wallTimeSeconds: 0,
        exitCode: 1,
      },
    );
  }

  createEditor(runAs?: string): Editor {
    const { files } = this.#sandbox;
    const options = { user: runAs };
    return {
      createFile: async ({ path, diff }) => {
        const target = this.#path(path, true);
        await asFileError(path, async () => {
          if (await files.exists(target, options))
            throw new UserError(`Cannot create file because it already exists: ${target}`);
          await files.write(target, applyDiff('', diff, 'create'), options);
        });
        return {};
      },
      updateFile: async ({ path, diff, moveTo }) => {
        const source = this.#path(path, true);
        const target = moveTo ? this.#path(moveTo, true) : source;
        await asFileError(path, async () => {
          await files.write(target, applyDiff(await files.readText(source, options), diff), options);
          if (target !== source) await files.remove(source, options);
        });
        return {};
      },
      deleteFile: async ({ path }) => {
        await asFileError(path, () => files.remove(this.#path(path, true), options));
        return {};
      },
    };
  }

  async viewImage({ path, runAs }: ViewImageArgs) {
    const { files } = this.#sandbox;
    const bytes = await asFileError(path, async () => {
      const target = this.#path(path);
      assertViewImageByteLength(path, (await files.stat(target, { user: runAs, follow: true })).sizeBytes);
      return files.read(target, { user: runAs });
    });
    return imageOutputFromBytes(path, bytes);
  }

  readFile({ path, runAs, maxBytes }: ReadFileArgs): Promise<Uint8Array> {
    const range = maxBytes === undefined ? {} : { length: maxBytes };
    if (maxBytes === 0) return Promise.resolve(new Uint8Array());
    return asFileError(path, async () => {
      const { files } = this.#sandbox;
      const target = this.#path(path);
      // A range of an empty file is none.
      if (maxBytes !== undefined && (await files.stat(target, { follow: true })).sizeBytes === 0)
        return new Uint8Array();
      return files.read(target, { user: runAs, ...range });
    });
  }

  listDir({ path, runAs }: ListDirectoryArgs): Promise<SandboxDirectoryEntry[]> {
    const { path: target, workspaceRelativePath: below } = this.#resolved(path);
    return asFileError(path, async () => {
      const entries: SandboxDirectoryEntry[] = [];
      for await (const { name, type } of this.#sandbox.files.list(target, { user: runAs, depth: 1 }))
        entries.push({
          name,
          path: posix.join(below ?? target, name),
          type: type === 'file' ? 'file' : type === 'directory' ? 'dir' : 'other',
        });
      return entries;
    });
  }

  pathExists(path: string, runAs?: string): Promise<boolean> {
    return asFileError(path, () => this.#sandbox.files.exists(this.#path(path), { user: runAs }));
  }

  async directoryExists(path: string, runAs?: string): Promise<boolean> {
    const { files } = this.#sandbox;
    const found = await files
      .stat(this.#path(path), { user: runAs, follow: true })
      .catch((error: unknown) => {
        if (!isCayError(error, 'not_found')) throw error;
      });
    return found?.type === 'directory';
  }

  async materializeEntry({ path, entry, runAs }: MaterializeEntryArgs): Promise<void> {
    const { path: target, workspaceRelativePath } = this.#resolved(path, true);
    await asFileError(path, () => materialize(this.#place(runAs), target, entry));
    this.state.manifest = mergeManifestEntryDelta(this.state.manifest, workspaceRelativePath ?? path, entry);
  }

  async applyManifest(manifest: Manifest, runAs?: string): Promise<void> {
    refuseUnsupported(manifest);
    for (const [path, entry] of Object.entries(manifest.validatedEntries()))
      await asFileError(path, () => materialize(this.#place(runAs, manifest), this.#path(path, true), entry));
    const before = this.state.manifest;
    const after = before === manifest ? before : mergeManifestDelta(before, manifest);
    this.state.environment = await mergeMaterializedEnvironment(before, after, this.state.environment);
    this.state.manifest = after;
  }

  async persistWorkspace(): Promise<Uint8Array> {
    const { manifest, workspacePersistence } = this.state;
    return asProviderError('keep the workspace', async () => {
      const left = [...manifest.ephemeralPersistencePaths()];
      // What is ephemeral would be in a snapshot.
      if (workspacePersistence === 'snapshot' && left.length === 0)
        return snapshotReference((await this.#sandbox.snapshot()).id);
      return left.length === 0 ? this.#tar() : this.#tarWithout(left);
    });
  }

  async hydrateWorkspace(data: WorkspaceArchiveData, options: WorkspaceArchiveOptions = {}): Promise<void> {
    const bytes = bytesOfArchive(data);
    const snapshot = snapshotOf(bytes);
    if (snapshot === undefined) {
      checkArchive(bytes, options.archiveLimits === undefined ? this.#archiveLimits : options.archiveLimits);
      const { root } = this.state.manifest;
      await asProviderError('put the workspace back', () => this.#sandbox.files.upload(root, bytes));
      return;
    }
    const before = this.#sandbox;
    this.#sandbox = await asProviderError(`go back to snapshot "${snapshot}"`, () => this.#again(snapshot));
    this.#processes = new Processes(this.#sandbox, this.state);
    this.state.sandboxId = this.#sandbox.id;
    delete this.state.exposedPorts;
    await before.kill().catch(() => {});
  }

  async resolveExposedPort(port: number): Promise<ExposedPortEndpoint> {
    if (!this.state.configuredExposedPorts.includes(port))
      throw new SandboxExposedPortUnavailableError(
        `Port ${port} is not exposed. Name it in "exposedPorts" of CaySandboxClient.`,
        { provider: 'cay', port },
      );
    const { url, token } = await asProviderError(`expose port ${port}`, () => this.#sandbox.expose(port));
    const { hostname, protocol, port: given } = new URL(url);
    const tls = protocol === 'https:';
    return {
      host: hostname,
      port: Number(given || (tls ? 443 : 80)),
      tls,
      ...(token !== undefined && { query: `cay_token=${token}` }),
    };
  }

  async stop(): Promise<void> {
    await this.#processes.endAll();
  }

  async shutdown(options?: SandboxSessionLifecycleOptions): Promise<void> {
    if (isKept(options)) this.#processes.detachAll();
    else await this.#processes.endAll();
  }

  /** Of a run that is to go on the sandbox is paused. Otherwise it is removed. */
  async delete(options?: SandboxSessionLifecycleOptions): Promise<void> {
    this.#processes.detachAll();
    await asProviderError('let go of the sandbox', async () => {
      if (isKept(options)) await this.#sandbox.pause();
      else await this.#sandbox.kill();
    });
  }

  async close(): Promise<void> {
    await this.delete();
  }

  async #tar(): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.#sandbox.files.download(this.state.manifest.root)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  async #tarWithout(left: readonly string[]): Promise<Uint8Array> {
    const { files } = this.#sandbox;
    const file = `/tmp/openai-agents-${crypto.randomUUID()}.tar`;
    const excluded = left.map((path) => `--exclude=./${path.replace(/^\/+/, '')}`);
    const argv = [
      'tar',
      '-C',
      this.state.manifest.root,
      '--anchored',
      '--no-wildcards',
      ...excluded,
      '-cf',
      file,
      '.',
    ];
    const { exitCode, stderr } = await this.#sandbox.exec(argv);
    if (exitCode !== 0) throw new UserError(`Cannot keep the workspace: ${stderr.trim()}`);
    try {
      return await files.read(file);
    } finally {
      await files.remove(file).catch(() => {});
    }
  }

  #place(user: string | undefined, manifest = this.state.manifest) {
    return { sandbox: this.#sandbox, manifest, user };
  }

  #resolved(path?: string, forWrite = false) {
    const { root, extraPathGrants } = this.state.manifest;
    return new WorkspacePathPolicy({ root, extraPathGrants }).resolve(path, { forWrite });
  }

  #path(path?: string, forWrite?: boolean): string {
    return this.#resolved(path, forWrite).path;
  }
}

function isKept(options: SandboxSessionLifecycleOptions | undefined): boolean {
  return options?.reason === 'cleanup' && options['preserveOwnedSessions'] === true;
}
