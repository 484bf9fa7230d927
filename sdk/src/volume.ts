import type { CreateVolumeInput, Volume as VolumeInfo, VolumePage } from './protocol/index.ts';
import { bytesOf, connect, type ConnectOptions, type Transport } from './transport.ts';

interface CallOptions {
  signal?: AbortSignal;
}

const ARCHIVE = { 'content-type': 'application/x-tar' };

/**
 * A directory that outlives sandboxes, and that several can mount at once.
 *
 *     const data = await Volume.create({ name: 'data', sizeBytes: 1024 ** 3 });
 *     const sandbox = await Sandbox.create({ mounts: [{ type: 'volume', volume: 'data', path: '/data' }] });
 *     const before = await data.snapshot('data-before');
 */
export class Volume {
  readonly id: string;
  readonly name: string;
  readonly #transport: Transport;
  readonly #path: string;
  /** The last answer of the server; `refresh` asks again. */
  info: VolumeInfo;

  private constructor(transport: Transport, info: VolumeInfo) {
    this.#transport = transport;
    this.#path = `/v1/volumes/${info.id}`;
    this.id = info.id;
    this.name = info.name;
    this.info = info;
  }

  static async create(
    request: CreateVolumeInput,
    options: ConnectOptions & CallOptions = {},
  ): Promise<Volume> {
    const transport = connect(options);
    const { signal } = options;
    return new Volume(transport, await transport.json('POST', '/v1/volumes', { json: request, signal }));
  }

  /** A volume that exists, by its name or its id. */
  static async connect(ref: string, options: ConnectOptions & CallOptions = {}): Promise<Volume> {
    const transport = connect(options);
    const { signal } = options;
    return new Volume(
      transport,
      await transport.json('GET', `/v1/volumes/${encodeURIComponent(ref)}`, { signal }),
    );
  }

  static async list(options: ConnectOptions & CallOptions = {}): Promise<Volume[]> {
    const transport = connect(options);
    const { volumes } = await transport.json<VolumePage>('GET', '/v1/volumes', { signal: options.signal });
    return volumes.map((info) => new Volume(transport, info));
  }

  /** Makes a volume of a tar archive, completely or not at all. */
  static async import(
    archive: AsyncIterable<Uint8Array>,
    { name, sizeBytes, ...options }: ConnectOptions & CallOptions & { name: string; sizeBytes?: number },
  ): Promise<Volume> {
    const transport = connect(options);
    const query = { name, ...(sizeBytes !== undefined && { sizeBytes: String(sizeBytes) }) };
    const info = await transport.json<VolumeInfo>('POST', '/v1/volumes/import', {
      query,
      headers: ARCHIVE,
      body: archive,
      signal: options.signal,
    });
    return new Volume(transport, info);
  }

  async refresh(options: CallOptions = {}): Promise<VolumeInfo> {
    return (this.info = await this.#transport.json('GET', this.#path, options));
  }

  /** Keeps what it has now, as a volume that never changes. */
  snapshot(name: string, options: CallOptions = {}): Promise<Volume> {
    return this.#copy({ name, from: this.id, readOnly: true }, options);
  }

  /** A volume that begins with what this one has now. */
  clone(name: string, options: CallOptions & { sizeBytes?: number | null } = {}): Promise<Volume> {
    const { sizeBytes, ...call } = options;
    return this.#copy({ name, from: this.id, ...(sizeBytes !== undefined && { sizeBytes }) }, call);
  }

  /** All that it has now, as a tar archive. */
  async export(options: CallOptions = {}): Promise<AsyncIterable<Uint8Array>> {
    return bytesOf(await this.#transport.request('GET', `${this.#path}/archive`, options));
  }

  /** Rejects `failed_precondition` while a sandbox has it mounted. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#transport.json('DELETE', this.#path, options);
  }

  async #copy(json: CreateVolumeInput, options: CallOptions): Promise<Volume> {
    return new Volume(
      this.#transport,
      await this.#transport.json('POST', '/v1/volumes', { json, ...options }),
    );
  }
}
