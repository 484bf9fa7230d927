/** What tools get: files and commands of a sandbox, as the AI SDK has them. */
import {
  extractLines,
  type Experimental_SandboxProcess as SandboxProcess,
  type Experimental_SandboxSession as SandboxSession,
} from '@ai-sdk/provider-utils';
import { bytesOf, isCayError, type FileInfo, type Process, type Sandbox } from '@cay/sdk';
import { randomUUID } from 'node:crypto';
import { posix } from 'node:path';

/** Output that nobody reads holds its process back, as a pipe does. */
const READ_AHEAD = 4 * 1024 * 1024;

type Options<Name extends 'run' | 'readTextFile' | 'writeTextFile' | 'writeFile' | 'writeBinaryFile'> =
  Parameters<SandboxSession[Name]>[0];
type SpawnOptions = Options<'run'> & { stdin?: boolean };
type PathOptions = { path: string; abortSignal?: AbortSignal };
type WritableSandboxProcess = SandboxProcess & { readonly stdin: WritableStream<Uint8Array> };

export class CaySandboxSession implements SandboxSession {
  protected readonly sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.sandbox = sandbox;
  }

  get description(): string {
    const { workdir, user, runtime, ports } = this.sandbox.info;
    return [
      `A Linux sandbox of Cay, isolated by ${runtime ?? 'its runtime'}, with files that stay.`,
      `Commands run with bash as "${user}", in ${workdir}.`,
      'The network reaches only what the policy of the sandbox allows.',
      ...(ports.length > 0
        ? [`Ports that are reached from outside: ${ports.map(({ port }) => port).join(', ')}`]
        : []),
    ].join('\n');
  }

  run = async ({ command, abortSignal, ...where }: Options<'run'>) => {
    const { sandbox } = this;
    abortSignal?.throwIfAborted();
    const id = `ai-sdk-${randomUUID()}`;
    const held = { stdout: '', stderr: '' };
    let exitCode = 1;
    // A command belongs to its sandbox: it runs on when its caller goes away, unless it is killed.
    const stop = () => void sandbox.signal(id, 'SIGKILL').catch(() => {});
    abortSignal?.addEventListener('abort', stop, { once: true });
    try {
      for await (const event of sandbox.execStream(command, { id, ...this.#where(where) })) {
        if (event.type === 'end') ({ exitCode } = event);
        if (event.type === 'stdout' || event.type === 'stderr') held[event.type] += event.data;
        // The signal may have come before the command had started.
        if (event.type === 'started' && abortSignal?.aborted) stop();
      }
    } finally {
      abortSignal?.removeEventListener('abort', stop);
    }
    abortSignal?.throwIfAborted();
    return { exitCode, ...held };
  };

  spawn = (async ({ command, abortSignal, stdin = false, ...where }: SpawnOptions) => {
    abortSignal?.throwIfAborted();
    const process = await this.sandbox.spawn(command, { ...this.#where(where), stdin });
    return handleOf(process, { stdin, abortSignal });
  }) as SandboxSession['spawn'];

  readFile = async ({ path, abortSignal }: PathOptions): Promise<ReadableStream<Uint8Array> | null> => {
    const content = this.sandbox.files.stream(this.#path(path), { signal: abortSignal });
    // The first piece says whether there is such a file.
    const first = await orNull(content.next());
    if (first === null) return null;
    return ReadableStream.from(
      (async function* () {
        if (!first.done) yield first.value;
        yield* content;
      })(),
    );
  };

  readBinaryFile = ({ path, abortSignal }: PathOptions): Promise<Uint8Array | null> =>
    orNull(this.sandbox.files.read(this.#path(path), { signal: abortSignal }));

  readTextFile = async ({ encoding = 'utf-8', startLine, endLine, ...options }: Options<'readTextFile'>) => {
    const bytes = await this.readBinaryFile(options);
    if (bytes === null) return null;
    return extractLines({
      text: Buffer.from(bytes).toString(encoding as BufferEncoding),
      startLine,
      endLine,
    });
  };

  writeFile = async ({ path, content, abortSignal }: Options<'writeFile'>): Promise<void> => {
    await this.sandbox.files.write(this.#path(path), bytesOf(new Response(content)), { signal: abortSignal });
  };

  writeBinaryFile = async ({ path, content, abortSignal }: Options<'writeBinaryFile'>): Promise<void> => {
    await this.sandbox.files.write(this.#path(path), content, { signal: abortSignal });
  };

  writeTextFile = ({ content, encoding = 'utf-8', ...options }: Options<'writeTextFile'>): Promise<void> =>
    this.writeBinaryFile({ ...options, content: Buffer.from(content, encoding as BufferEncoding) });

  stat = async ({ path, abortSignal }: PathOptions) => {
    const file = await orNull(
      this.sandbox.files.stat(this.#path(path), { follow: true, signal: abortSignal }),
    );
    return file && { type: typeOf(file), size: file.sizeBytes };
  };

  listDirectory = async ({ path, abortSignal }: PathOptions) =>
    orNull(
      (async () => {
        const entries = [];
        for await (const file of this.sandbox.files.list(this.#path(path), { depth: 1, signal: abortSignal }))
          entries.push({
            name: file.name,
            type: file.type === 'symlink' ? ('symlink' as const) : typeOf(file),
          });
        return entries;
      })(),
    );

  deleteFile = async ({ path, abortSignal }: PathOptions): Promise<boolean> => {
    const { files } = this.sandbox;
    const file = await orNull(files.stat(this.#path(path), { signal: abortSignal }));
    if (file === null) return false;
    if (file.type === 'directory') throw new Error(`Cannot delete "${path}": it is a directory`);
    await files.remove(this.#path(path), { signal: abortSignal });
    return true;
  };

  #path(path: string): string {
    return posix.resolve(this.sandbox.info.workdir, path);
  }

  #where({ workingDirectory, env }: { workingDirectory?: string; env?: Record<string, string> }) {
    return {
      ...(workingDirectory !== undefined && { workdir: this.#path(workingDirectory) }),
      ...(env && { env }),
    };
  }
}

/** What does not exist is null to the AI SDK. */
async function orNull<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (isCayError(error, 'not_found')) return null;
    throw error;
  }
}

const typeOf = ({ type }: Pick<FileInfo, 'type'>): 'file' | 'directory' | 'other' =>
  type === 'file' || type === 'directory' ? type : 'other';

function handleOf(
  process: Process,
  { stdin, abortSignal }: { stdin: boolean; abortSignal: AbortSignal | undefined },
): SandboxProcess | WritableSandboxProcess {
  const outputs = { stdout: new Output(), stderr: new Output() };
  const kill = () => process.kill('SIGKILL');
  if (abortSignal?.aborted) kill();
  abortSignal?.addEventListener('abort', kill, { once: true });
  const pumped = (async () => {
    try {
      for await (const { channel, data } of process) await outputs[channel as 'stdout' | 'stderr'].push(data);
      for (const output of Object.values(outputs)) output.close();
    } catch (error) {
      for (const output of Object.values(outputs)) output.fail(error);
    } finally {
      abortSignal?.removeEventListener('abort', kill);
    }
  })();
  // A reader may have gone away in between.
  pumped.catch(() => {});
  return {
    pid: process.pid,
    stdout: outputs.stdout.stream,
    stderr: outputs.stderr.stream,
    async wait() {
      const { exitCode } = await process.wait();
      abortSignal?.throwIfAborted();
      return { exitCode };
    },
    async kill() {
      kill();
    },
    ...(stdin && {
      stdin: new WritableStream<Uint8Array>({
        write: (data) => process.write(data),
        close: () => process.closeStdin(),
        abort: () => process.closeStdin(),
      }),
    }),
  };
}

/** A stream that its writer waits for. */
class Output {
  readonly stream: ReadableStream<Uint8Array>;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #wake: (() => void) | undefined;
  #cancelled = false;

  constructor() {
    this.stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => void (this.#controller = controller),
        pull: () => this.#wake?.(),
        cancel: () => {
          this.#cancelled = true;
          this.#wake?.();
        },
      },
      { highWaterMark: READ_AHEAD, size: (chunk) => chunk!.byteLength },
    );
  }

  async push(data: Uint8Array): Promise<void> {
    if (this.#cancelled) return;
    this.#controller.enqueue(data);
    while (!this.#cancelled && this.#controller.desiredSize! <= 0)
      await new Promise<void>((resolve) => (this.#wake = resolve));
  }

  close(): void {
    if (!this.#cancelled) this.#controller.close();
  }

  fail(error: unknown): void {
    if (!this.#cancelled) this.#controller.error(error);
  }
}
