import type { Secret, ShownSecret } from './protocol/index.ts';
import { connect, type ConnectOptions, type Transport } from './transport.ts';

interface CallOptions {
  signal?: AbortSignal;
}

/**
 * Credentials of a project that the server puts on requests of sandboxes. No call answers with a value.
 *
 *     const secrets = new Secrets();
 *     await secrets.set('API_TOKEN', token);
 *     await sandbox.network.allow({
 *       to: 'api.example.org',
 *       put: { as: 'header', header: 'Authorization', value: 'Bearer {secret}', secret: 'API_TOKEN' },
 *     });
 */
export class Secrets {
  readonly #transport: Transport;

  constructor(options: ConnectOptions = {}) {
    this.#transport = connect(options);
  }

  /** Makes it, or gives it another value, which the next request of every sandbox gets. */
  set(name: string, value: string, options: CallOptions = {}): Promise<Secret> {
    return this.#transport.json('PUT', pathOf(name), { ...options, json: { value } });
  }

  async list(options: CallOptions = {}): Promise<Secret[]> {
    return (await this.#transport.json<{ secrets: Secret[] }>('GET', '/v1/secrets', options)).secrets;
  }

  /** The secret without its value, and whose policies use it. */
  get(name: string, options: CallOptions = {}): Promise<ShownSecret> {
    return this.#transport.json('GET', pathOf(name), options);
  }

  /** One that a policy uses is removed with `force` alone. */
  async remove(name: string, { force, signal }: CallOptions & { force?: boolean } = {}): Promise<void> {
    const query = force === undefined ? {} : { force };
    await this.#transport.json('DELETE', pathOf(name), { query, ...(signal && { signal }) });
  }
}

const pathOf = (name: string) => `/v1/secrets/${encodeURIComponent(name)}`;
