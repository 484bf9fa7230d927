import type { Sandbox as SandboxInfo } from './protocol/index.ts';
import type { Transport } from './transport.ts';

export interface CallOptions {
  signal?: AbortSignal;
}

/** What all calls for one sandbox have in common. */
export abstract class SandboxHandle {
  readonly id: string;
  /** The last answer of the server; `refresh` asks again. */
  info: SandboxInfo;
  protected readonly transport: Transport;

  protected constructor(transport: Transport, info: SandboxInfo) {
    this.transport = transport;
    this.id = info.id;
    this.info = info;
  }

  protected get base(): string {
    return `/v1/sandboxes/${this.id}`;
  }

  protected call<T>(
    method: string,
    path: string,
    options: CallOptions & { json?: unknown; headers?: Record<string, string> } = {},
  ): Promise<T> {
    return this.transport.json<T>(method, `${this.base}${path}`, options);
  }
}
