import { CayError } from './protocol/error.ts';
import type { FileEvent, FileInfo } from './protocol/index.ts';
import { bytesOf, type RequestOptions, type Transport } from './transport.ts';

interface CallOptions {
  signal?: AbortSignal;
  /** On whose behalf; the sandbox's own user if absent. */
  user?: string;
}

export type Content = string | Uint8Array | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** A sandbox's files. A relative path is below the sandbox's working directory. */
export class Files {
  readonly #transport: Transport;
  readonly #base: string;
  readonly #workdir: string;

  constructor(transport: Transport, sandboxId: string, workdir: string) {
    this.#transport = transport;
    this.#base = `/v1/sandboxes/${sandboxId}/files`;
    this.#workdir = workdir.replace(/\/+$/, '');
  }

  #absolute(path: string): string {
    return path.startsWith('/') || path === '' ? path : `${this.#workdir}/${path.replace(/^(\.\/+)+/, '')}`;
  }

  /** The whole file as bytes, or part of it. */
  async read(
    path: string,
    options: CallOptions & { offset?: number; length?: number } = {},
  ): Promise<Uint8Array> {
    const response = await this.#get(path, options);
    return new Uint8Array(await response.arrayBuffer());
  }

  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** The file in pieces, for sizes that do not fit in memory. */
  async *stream(
    path: string,
    options: CallOptions & { offset?: number; length?: number } = {},
  ): AsyncGenerator<Uint8Array, void, undefined> {
    yield* bytesOf(await this.#get(path, options));
  }

  /** Replaces the file in one step, making parents as needed. */
  write(
    path: string,
    content: Content,
    options: CallOptions & { mode?: number; append?: boolean; exclusive?: boolean } = {},
  ): Promise<FileInfo> {
    const { signal, user, mode, append, exclusive } = options;
    return this.#transport.json('PUT', this.#base, {
      query: { path: this.#absolute(path), user, mode: mode?.toString(8), append, exclusive },
      body: content as RequestOptions['body'],
      headers: { 'content-type': 'application/octet-stream' },
      signal,
    });
  }

  stat(path: string, { signal, user, follow }: CallOptions & { follow?: boolean } = {}): Promise<FileInfo> {
    return this.#transport.json('GET', `${this.#base}/stat`, {
      query: { path: this.#absolute(path), user, follow },
      signal,
    });
  }

  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    return this.stat(path, options).then(
      () => true,
      (error: { code?: string }) => {
        if (error.code === 'not_found') return false;
        throw error;
      },
    );
  }

  async *list(
    path: string,
    { signal, user, depth }: CallOptions & { depth?: number } = {},
  ): AsyncGenerator<FileInfo, void, undefined> {
    yield* this.#transport.lines<FileInfo>('GET', `${this.#base}/list`, {
      query: { path: this.#absolute(path), user, depth },
      signal,
    });
  }

  async mkdir(path: string, { mode, ...options }: CallOptions & { mode?: number } = {}): Promise<boolean> {
    return (await this.#post<{ created: boolean }>('mkdir', { path: this.#absolute(path), mode }, options))
      .created;
  }

  async move(
    from: string,
    to: string,
    { overwrite, ...options }: CallOptions & { overwrite?: boolean } = {},
  ): Promise<void> {
    await this.#post('move', { from: this.#absolute(from), to: this.#absolute(to), overwrite }, options);
  }

  async remove(
    path: string,
    { signal, user, recursive }: CallOptions & { recursive?: boolean } = {},
  ): Promise<void> {
    await this.#transport.json('DELETE', this.#base, {
      query: { path: this.#absolute(path), user, recursive },
      signal,
    });
  }

  async chmod(
    path: string,
    mode: number,
    { recursive, ...options }: CallOptions & { recursive?: boolean } = {},
  ): Promise<void> {
    await this.#post('chmod', { path: this.#absolute(path), mode, recursive }, options);
  }

  async chown(
    path: string,
    owner: string,
    { recursive, ...options }: CallOptions & { recursive?: boolean } = {},
  ): Promise<void> {
    await this.#post('chown', { path: this.#absolute(path), owner, recursive }, options);
  }

  async symlink(path: string, target: string, options: CallOptions = {}): Promise<void> {
    await this.#post('symlink', { path: this.#absolute(path), target }, options);
  }

  /** What happens below `path` from now on. */
  async *watch(
    path: string,
    { signal, user, recursive }: CallOptions & { recursive?: boolean } = {},
  ): AsyncGenerator<FileEvent, void, undefined> {
    yield* this.#transport.lines<FileEvent>('GET', `${this.#base}/watch`, {
      query: { path: this.#absolute(path), user, recursive },
      signal,
    });
  }

  /** A whole tree as a tar stream. */
  async *download(
    path: string,
    { signal, user }: CallOptions = {},
  ): AsyncGenerator<Uint8Array, void, undefined> {
    yield* bytesOf(
      await this.#transport.request('GET', `${this.#base}/tar`, {
        query: { path: this.#absolute(path), user },
        signal,
      }),
    );
  }

  /** Unpacks a tar stream below `path`. `uploadDir` of `@cay/sdk/node` makes one of a directory. */
  async upload(
    path: string,
    tar: Content,
    { signal, user }: CallOptions = {},
  ): Promise<{ entries: number; bytes: number }> {
    // Every header of an archive has zero bytes.
    if (typeof tar === 'string' && !tar.includes('\0'))
      throw new CayError('invalid_argument', `"${tar.slice(0, 100)}" is a text and no tar archive`, {
        hint: 'uploadDir(files, directory, path) of "@cay/sdk/node" uploads a directory of this machine',
      });
    return this.#transport.json('PUT', `${this.#base}/tar`, {
      query: { path: this.#absolute(path), user },
      body: tar as RequestOptions['body'],
      headers: { 'content-type': 'application/x-tar' },
      signal,
    });
  }

  #get(
    path: string,
    { signal, user, offset, length }: CallOptions & { offset?: number; length?: number },
  ): Promise<Response> {
    const ranged = offset !== undefined || length !== undefined;
    const end = length === undefined ? '' : (offset ?? 0) + length - 1;
    return this.#transport.request('GET', this.#base, {
      query: { path: this.#absolute(path), user },
      signal,
      ...(ranged && { headers: { range: `bytes=${offset ?? 0}-${end}` } }),
    });
  }

  #post<T>(verb: string, json: Record<string, unknown>, { signal, user }: CallOptions): Promise<T> {
    return this.#transport.json('POST', `${this.#base}/${verb}`, { json: { ...json, user }, signal });
  }
}
