/** What the harness keeps: a session that also has ports, an end, and a network policy. */
import {
  HarnessCapabilityUnsupportedError,
  type HarnessV1NetworkPolicy,
  type HarnessV1NetworkSandboxSession,
  type HarnessV1PortEndpoint,
  type HarnessV1RequestTransformation,
} from '@ai-sdk/harness';

import {
  connect,
  isCayError,
  Secrets,
  type ConnectOptions,
  type ExposedPort,
  type NetworkRuleObject,
  type Put,
  type Sandbox,
} from '@cay/sdk';
import { createHash } from 'node:crypto';
import { allows, combined, divided, ruleOf, rulesOf, SECRET_PREFIX } from './network-policy.ts';
import { CaySandboxSession } from './session.ts';

interface SessionOptions {
  ports: readonly number[];
  onStop: 'pause' | 'stop';
  /** How the server is reached. */
  access: ConnectOptions;
}

type PortOptions = Parameters<HarnessV1NetworkSandboxSession['getPortEndpoint']>[0];

export class CayNetworkSandboxSession extends CaySandboxSession implements HarnessV1NetworkSandboxSession {
  readonly id: string;
  readonly defaultWorkingDirectory: string;
  readonly #options: SessionOptions;
  #ports: readonly number[];
  readonly #secrets: Secrets;
  #transformations: readonly NetworkRuleObject[] | undefined;

  constructor(sandbox: Sandbox, options: SessionOptions) {
    super(sandbox);
    this.id = sandbox.id;
    this.defaultWorkingDirectory = sandbox.info.workdir;
    this.#options = options;
    this.#secrets = new Secrets(options.access);
    this.#ports = [...new Set([...options.ports, ...sandbox.info.ports.map(({ port }) => port)])];
  }

  get ports(): readonly number[] {
    return this.#ports;
  }

  restricted(): CaySandboxSession {
    return new CaySandboxSession(this.sandbox);
  }

  /** The address is one of the server itself, so that no name service has to know it. */
  getPortEndpoint = async (options: PortOptions): Promise<HarnessV1PortEndpoint> => {
    const { url, token } = await this.#exposed(options);
    return { url, ...(token !== undefined && { headers: { 'x-cay-preview-token': token } }) };
  };

  /** The token is in the query: every client with the URL reaches the port. */
  getPortUrl = async (options: PortOptions): Promise<string> => {
    const { url, token } = await this.#exposed(options);
    return token === undefined ? url : `${url}?cay_token=${token}`;
  };

  setPorts = async (
    ports: readonly number[],
    { abortSignal }: { abortSignal?: AbortSignal } = {},
  ): Promise<void> => {
    const gone = this.#ports.filter((port) => !ports.includes(port));
    for (const port of gone) await this.sandbox.unexpose(port, { signal: abortSignal });
    for (const port of ports) await this.sandbox.expose(port, { signal: abortSignal });
    this.#ports = [...ports];
  };

  stop = async (): Promise<void> => {
    try {
      const { state } = await this.sandbox.refresh();
      if (state !== 'active') return;
      if (this.#options.onStop === 'stop') await this.sandbox.stop();
      else await this.sandbox.pause();
    } catch (error) {
      if (!isCayError(error, 'not_found')) throw error;
    }
  };

  destroy = async (): Promise<void> => {
    const rules = await this.#known().catch(() => []);
    await this.sandbox.kill();
    await this.#forget(secretsOf(rules));
  };

  /**
   * A host is its ports 80 and 443; `host:5432` is another. Holds at once, and cuts what it does not allow.
   */
  setNetworkPolicy = async (policy: HarnessV1NetworkPolicy): Promise<void> => {
    this.#transformations = await this.#known();
    await this.sandbox.network.set(combined(rulesOf(policy), this.#transformations));
  };

  /**
   * Headers that the server puts on requests, outside the sandbox. Each is a stored secret of the project.
   * They allow nothing: a host that the network policy does not allow is refused.
   */
  setRequestTransformations = (transformations: readonly HarnessV1RequestTransformation[]): Promise<void> =>
    this.#transform(transformations, []);

  addRequestTransformations = async (
    transformations: readonly HarnessV1RequestTransformation[],
  ): Promise<void> => this.#transform(transformations, await this.#known());

  async #transform(
    transformations: readonly HarnessV1RequestTransformation[],
    before: readonly NetworkRuleObject[],
  ): Promise<void> {
    const { rules } = divided((await this.sandbox.network.get()).policy);
    for (const { match } of transformations)
      if (!allows(rules, match.host))
        throw new HarnessCapabilityUnsupportedError({
          harnessId: 'cay',
          message: `Cannot transform requests to "${match.host}": the network policy of the sandbox does not allow it by name. Add it to "network" of createCaySandbox, such as { base: "packages", allow: ["${match.host}"] }.`,
        });
    // What cannot be said is refused before a credential is stored.
    for (const { match } of transformations) ruleOf(match, []);
    const known = await this.#known();
    const made = await Promise.all(
      transformations.map(async ({ match, transform }) =>
        ruleOf(match, await this.#stored(transform.headers)),
      ),
    );
    const replaced = new Set(made.map(sameness));
    this.#transformations = [...before.filter((rule) => !replaced.has(sameness(rule))), ...made];
    await this.sandbox.network.set(combined(rules, this.#transformations));
    await this.#forget(unused(known, this.#transformations));
  }

  /** The rules of another program that had this session are in the policy. */
  async #known(): Promise<readonly NetworkRuleObject[]> {
    return this.#transformations ?? divided((await this.sandbox.network.get()).policy).transformations;
  }

  /** Another session may use the same. */
  async #forget(names: ReadonlySet<string>): Promise<void> {
    for (const name of names) await this.#secrets.remove(name).catch(() => {});
  }

  /** One credential is one secret, in however many sessions it is used. */
  #stored(headers: Readonly<Record<string, string>>): Promise<Put[]> {
    return Promise.all(
      Object.entries(headers).map(async ([header, value]) => {
        const secret =
          SECRET_PREFIX + createHash('sha256').update(`${header}\0${value}`).digest('hex').slice(0, 40);
        await this.#secrets.set(secret, value);
        return { as: 'header' as const, header, secret };
      }),
    );
  }

  async #exposed({
    port,
    protocol = 'http',
  }: PortOptions): Promise<{ url: string; token: ExposedPort['token'] }> {
    if (!this.#ports.includes(port))
      throw new HarnessCapabilityUnsupportedError({
        harnessId: 'cay',
        message: `Port ${port} is not exposed by this sandbox (exposed: ${this.#ports.join(', ') || 'none'}). Name it in "ports" of createCaySandbox, or call setPorts.`,
      });
    const { token } = await this.sandbox.expose(port);
    const url = new URL(`${connect(this.#options.access).url}/preview/${this.id}/${port}/`);
    // Whether it is encrypted depends on the server.
    if (protocol === 'ws') url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    return { url: url.href, token };
  }
}

/** Rules that put the same headers on the same requests. */
function sameness({ put = [], ...match }: NetworkRuleObject): string {
  return JSON.stringify([match, [put].flat().map((one) => (one.as === 'header' ? one.header : one.as))]);
}

function secretsOf(rules: readonly NetworkRuleObject[]): Set<string> {
  return new Set(rules.flatMap(({ put = [] }) => [put].flat().map(({ secret }) => secret!)));
}

function unused(before: readonly NetworkRuleObject[], now: readonly NetworkRuleObject[]): Set<string> {
  const used = secretsOf(now);
  return new Set([...secretsOf(before)].filter((name) => !used.has(name)));
}
