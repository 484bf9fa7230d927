import type { ExposedPort, PortList, PublishedPort, PublishPortInput } from './protocol/index.ts';
import { SandboxCommands } from './sandbox-commands.ts';
import type { CallOptions } from './sandbox-handle.ts';

/** The ports of a sandbox. */
export abstract class SandboxPorts extends SandboxCommands {
  /** Makes a port reachable from outside; `url` and, if it is private, `token` say how. */
  async expose(
    port: number,
    { visibility = 'private', ...options }: CallOptions & { visibility?: ExposedPort['visibility'] } = {},
  ): Promise<ExposedPort> {
    return this.call('PUT', `/ports/${port}`, { ...options, json: { visibility } });
  }

  async unexpose(port: number, options: CallOptions = {}): Promise<void> {
    await this.call('DELETE', `/ports/${port}`, options);
  }

  /** Ports that listen inside, that are exposed, and that are published. */
  ports(options: CallOptions = {}): Promise<PortList> {
    return this.call('GET', '/ports', options);
  }

  /**
   * Makes a port of the server's machine lead to a port inside, without a key. It stays while the sandbox
   * exists.
   */
  publish(wanted: PublishPortInput, options: CallOptions = {}): Promise<PublishedPort> {
    return this.call('POST', '/published', { ...options, json: wanted });
  }

  async unpublish(
    hostPort: number,
    { protocol, ...options }: CallOptions & { protocol?: 'tcp' | 'udp' } = {},
  ): Promise<void> {
    const query = protocol === undefined ? '' : `?protocol=${protocol}`;
    await this.call('DELETE', `/published/${hostPort}${query}`, options);
  }

  /** A raw TCP connection to a port inside, as binary WebSocket messages. */
  tcp(port: number, options: CallOptions = {}): Promise<WebSocket> {
    return this.transport.socket(`${this.base}/ports/${port}/tcp`, options);
  }
}
