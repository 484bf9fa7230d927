import type {
  BucketInfo,
  CreateBucketInput,
  ObjectList,
  SignedObject,
  SignObjectInput,
  BucketMountState,
  SyncState,
  SyncStates,
  Transfer,
} from './protocol/index.ts';
import { connect, type ConnectOptions, type Transport } from './transport.ts';

interface CallOptions {
  signal?: AbortSignal;
}

interface CopyOptions extends CallOptions {
  /** Name or id. */
  sandbox: string;
  /** A directory of the sandbox. */
  path: string;
  /** Below the bucket's own prefix. */
  prefix?: string;
}

/**
 * A place on an S3 server that files of sandboxes come from and go to. Its credentials are secrets of the
 * project.
 *
 *     await new Secrets().set('s3-key', secretAccessKey);
 *     const data = await Bucket.create({ name: 'data', bucket: 'my-bucket', accessKeyId, secret: 's3-key' });
 *     const sandbox = await Sandbox.create({ buckets: [{ bucket: 'data', path: '/home/user/data' }] });
 *     await data.export({ sandbox: sandbox.id, path: '/home/user/results', prefix: 'results' });
 */
export class Bucket {
  readonly name: string;
  readonly info: BucketInfo;
  readonly #transport: Transport;
  readonly #path: string;

  private constructor(transport: Transport, info: BucketInfo) {
    this.#transport = transport;
    this.#path = `/v1/buckets/${encodeURIComponent(info.name)}`;
    this.name = info.name;
    this.info = info;
  }

  /** Asks the S3 server for the bucket first. */
  static async create(
    request: CreateBucketInput,
    options: ConnectOptions & CallOptions = {},
  ): Promise<Bucket> {
    const transport = connect(options);
    const { signal } = options;
    return new Bucket(transport, await transport.json('POST', '/v1/buckets', { json: request, signal }));
  }

  static async connect(name: string, options: ConnectOptions & CallOptions = {}): Promise<Bucket> {
    const transport = connect(options);
    const { signal } = options;
    return new Bucket(
      transport,
      await transport.json('GET', `/v1/buckets/${encodeURIComponent(name)}`, { signal }),
    );
  }

  static async list(options: ConnectOptions & CallOptions = {}): Promise<Bucket[]> {
    const transport = connect(options);
    const { signal } = options;
    const { buckets } = await transport.json<{ buckets: BucketInfo[] }>('GET', '/v1/buckets', { signal });
    return buckets.map((info) => new Bucket(transport, info));
  }

  /** The copies of buckets that a sandbox has, and how the last sync of each ended. */
  static async syncs(sandbox: string, options: ConnectOptions & CallOptions = {}): Promise<SyncState[]> {
    const { signal } = options;
    const path = `/v1/sandboxes/${encodeURIComponent(sandbox)}/buckets`;
    return (await connect(options).json<{ buckets: SyncState[] }>('GET', path, { signal })).buckets;
  }

  /** The buckets that a sandbox mounts, and which of their files they do not have yet. */
  static async mounts(
    sandbox: string,
    options: ConnectOptions & CallOptions = {},
  ): Promise<BucketMountState[]> {
    const { signal } = options;
    const path = `/v1/sandboxes/${encodeURIComponent(sandbox)}/buckets`;
    return (await connect(options).json<SyncStates>('GET', path, { signal })).mounts;
  }

  /** Writes what a sandbox changed to its buckets now, also to those that it mounts. */
  static async sync(sandbox: string, options: ConnectOptions & CallOptions = {}): Promise<SyncState[]> {
    const { signal } = options;
    const path = `/v1/sandboxes/${encodeURIComponent(sandbox)}/buckets/sync`;
    return (await connect(options).json<{ buckets: SyncState[] }>('POST', path, { signal })).buckets;
  }

  /** Keeps the files of a copy, and writes nothing of them any more. */
  static async detach(
    sandbox: string,
    path: string,
    options: ConnectOptions & CallOptions = {},
  ): Promise<void> {
    const { signal } = options;
    const of = `/v1/sandboxes/${encodeURIComponent(sandbox)}/buckets`;
    await connect(options).json('DELETE', of, { query: { path }, signal });
  }

  objects({
    signal,
    ...query
  }: CallOptions & { prefix?: string; recursive?: boolean; limit?: number } = {}): Promise<ObjectList> {
    return this.#transport.json('GET', `${this.#path}/objects`, { query, ...(signal && { signal }) });
  }

  /** Objects become files of a sandbox. */
  import({ signal, ...json }: CopyOptions): Promise<Transfer> {
    return this.#transport.json('POST', `${this.#path}/import`, { json, ...(signal && { signal }) });
  }

  /** Files of a sandbox become objects. */
  export({ signal, ...json }: CopyOptions): Promise<Transfer> {
    return this.#transport.json('POST', `${this.#path}/export`, { json, ...(signal && { signal }) });
  }

  /** An address with which anybody may read or write one object, until it expires. */
  sign({ signal, ...json }: SignObjectInput & CallOptions): Promise<SignedObject> {
    return this.#transport.json('POST', `${this.#path}/sign`, { json, ...(signal && { signal }) });
  }

  /** Forgets it; its objects stay. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#transport.json('DELETE', this.#path, options);
  }
}
