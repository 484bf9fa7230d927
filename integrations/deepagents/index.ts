/**
 * @module A backend of LangChain's deepagents for JavaScript.
 *
 *     const backend = await CayBackend.create();
 *     const agent = createDeepAgent({ backend });
 */
import { isCayError, Sandbox, type ConnectOptions, type CreateSandboxInput } from '@cay/sdk';
import {
  BaseSandbox,
  type ExecuteResponse,
  type FileDownloadResponse,
  type FileOperationError,
  type FileUploadResponse,
} from 'deepagents';

const MOST_OUTPUT = 8 * 1024 * 1024;
const USUAL_TIMEOUT_MS = 30 * 60_000;

export class CayBackend extends BaseSandbox {
  readonly sandbox: Sandbox;
  #running = true;

  constructor(sandbox: Sandbox) {
    super();
    this.sandbox = sandbox;
  }

  static async create(request: CreateSandboxInput = {}, options: ConnectOptions = {}): Promise<CayBackend> {
    return new CayBackend(await Sandbox.create(request, options));
  }

  get id(): string {
    return this.sandbox.id;
  }

  get isRunning(): boolean {
    return this.#running;
  }

  async execute(command: string): Promise<ExecuteResponse> {
    const { stdout, stderr, exitCode, truncated } = await this.sandbox.exec(command, {
      timeoutMs: USUAL_TIMEOUT_MS,
      maxOutputBytes: MOST_OUTPUT,
    });
    return { output: stdout + stderr, exitCode, truncated };
  }

  uploadFiles(files: [string, Uint8Array][]): Promise<FileUploadResponse[]> {
    return Promise.all(
      files.map(async ([path, content]) => {
        try {
          await this.sandbox.files.write(path, content);
          return { path, error: null };
        } catch (error) {
          return { path, error: await this.#why(path, error) };
        }
      }),
    );
  }

  downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    return Promise.all(
      paths.map(async (path) => {
        try {
          return { path, content: await this.sandbox.files.read(path), error: null };
        } catch (error) {
          return { path, content: null, error: await this.#why(path, error) };
        }
      }),
    );
  }

  /** A backend that goes on from what this one is, with its own files from then on. */
  async fork(): Promise<CayBackend> {
    const [child] = await this.sandbox.fork();
    return new CayBackend(child!);
  }

  /** Removes the sandbox. */
  async close(): Promise<void> {
    this.#running = false;
    await this.sandbox.kill();
  }

  async #why(path: string, error: unknown): Promise<FileOperationError> {
    if (isCayError(error, 'not_found')) return 'file_not_found';
    if (isCayError(error, 'permission_denied')) return 'permission_denied';
    const type = await this.sandbox.files.stat(path, { follow: true }).then(
      (file) => file.type,
      () => undefined,
    );
    if (type === 'directory') return 'is_directory';
    if (isCayError(error, 'invalid_argument')) return 'invalid_path';
    throw error;
  }
}
