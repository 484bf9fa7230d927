import type {
  EgressAttempt,
  EgressLimits,
  EgressPreset,
  EgressStats,
  NetworkPolicy,
  NetworkRule,
  SandboxId,
} from '@cay/sdk/protocol';
import { canonicalAddress } from '../lib/canonical-address.ts';
import { type Clock, openClock } from '../lib/clock.ts';
import { nameResolver, type Resolver } from '../lib/name-resolver.ts';
import type { BrokeredSecret } from './broker/broker.ts';
import { putSecrets } from './broker/put-secrets.ts';
import type { ConnectionTarget } from './carrier/addresses.ts';
import { Connection } from './carrier/connection.ts';
import { Window } from './carrier/budget.ts';
import { sshProxy } from './ssh/ssh-proxy.ts';
import { Denial } from './carrier/denial.ts';
import type { EgressTimeouts, Engine, TlsTermination } from './carrier/engine.ts';
import { addressBook } from './carrier/own-addresses.ts';
import { projectCarriage } from './carrier/project-carriage.ts';
import type { CarryLimits } from './carrier/project-connections.ts';
import type { UpstreamProxy } from './carrier/upstream-proxy.ts';
import { DatagramFlow } from './carrier/datagram-flow.ts';
import type { CarriedStream, Egress, EgressLookupAnswer, EgressTarget } from './egress.ts';
import { PeerConnection } from './carrier/peer-connection.ts';
import { openHttp1Proxy } from './http/http1-proxy.ts';
import { openHttp2Proxy } from './http/http2-proxy.ts';
import { compiledPolicies } from './policy/compiled-policies.ts';
import { decideName, type KnownAddress, type Layers } from './policy/decide.ts';
import { udpLayers } from './policy/udp-layers.ts';
import { type Member, type PeerAccess, Peers } from './peers.ts';
import { normalizeName } from './rules/parse-name.ts';
import { type Ask, type Grant, SandboxEgress } from './sandbox-egress.ts';
import type { Authority } from './tls/authority.ts';
import { terminateTls } from './tls/terminate-tls.ts';

export interface EgressOptions {
  readonly clock?: Clock | undefined;
  readonly resolver?: Resolver | undefined;
  /** Tells what an address is. By default by its number and the interfaces of this machine. */
  readonly classify?: ((address: string) => KnownAddress) | undefined;
  /** The operator's own proxy. */
  readonly proxy?: UpstreamProxy | undefined;
  readonly presets?: readonly EgressPreset[] | undefined;
  /** Of every sandbox. Policies can only lower them. */
  readonly limits?: EgressLimits | undefined;
  readonly timeouts?: Partial<EgressTimeouts> | undefined;
  /**
   * Makes certificates for names whose TLS is terminated here. Without it rules with conditions fail on
   * HTTPS.
   */
  readonly authority?: Authority | undefined;
  /** Certificates, in PEM, that are trusted beside those of this machine. */
  readonly trusted?: readonly string[] | undefined;
  /**
   * The private key that the server has as an SSH host for sandboxes. Without it no SSH key is put on
   * anything.
   */
  readonly sshHostKey?: string | undefined;
  /** The secrets of a sandbox. Called for each request; it must be quick. */
  readonly secrets?: ((sandbox: SandboxId) => readonly BrokeredSecret[]) | undefined;
  /** How sandboxes of one named network are reached. Without it they do not reach each other. */
  readonly peers?: PeerAccess | undefined;
  /** Who is asked about attempts that a policy neither allows nor denies. Without it they are denied. */
  readonly ask?: Ask | undefined;
  /** Called with every attempt that has ended. It must not throw. */
  readonly onAttempt?: ((attempt: EgressAttempt) => void) | undefined;
  /**
   * How many attempts of each sandbox are kept in memory at most. A project with many sandboxes has fewer.
   */
  readonly keepAttempts?: number | undefined;
}

/**
 * A network of its own for one sandbox: what stands for the internet while an enforcement report is made.
 * Policies, limits and checks are the same.
 */
export type Stage = Pick<EgressOptions, 'resolver' | 'classify' | 'trusted' | 'secrets' | 'timeouts'>;

/** The egress of a server, with what the control plane needs of it. */
export interface OpenedEgress extends Egress {
  readonly policies: {
    /**
     * Sets what a sandbox may reach: its own policy first, then those that bound it, the installation's last.
     * It holds at once, and connections that are not allowed any more are cut. Throws `invalid_argument` if a
     * rule cannot be read; then nothing has changed. Sandboxes of one project share its limits; a sandbox
     * without a project has them to itself.
     */
    set(sandbox: SandboxId, policies: readonly NetworkPolicy[], options?: { project?: string }): void;
    get(sandbox: SandboxId): readonly NetworkPolicy[] | undefined;
    /** Forgets a sandbox. Nothing of it is carried any more. */
    remove(sandbox: SandboxId): void;
  };
  readonly networks: {
    /**
     * Sets the named networks of a sandbox. It holds at once; connections between two that share none are
     * cut.
     */
    set(sandbox: SandboxId, member: Member): void;
  };
  readonly projects: {
    /** Sets what the connections of a project may take. It holds at once. */
    limit(project: string, limits: CarryLimits): void;
    /** What they take now. */
    taken(project: string): { connections: number; bytes: number };
    /** Connections of all projects that were refused or cut because of these limits. */
    refused(): number;
  };
  /** Allows something that a policy asks about, until a time of day in milliseconds. */
  grant(sandbox: SandboxId, rule: NetworkRule, expiresAt: number): void;
  grants(sandbox: SandboxId): readonly Grant[];
  /** The latest attempts of a sandbox, the latest first. */
  attempts(sandbox: SandboxId): EgressAttempt[];
  stats(sandbox: SandboxId): EgressStats | undefined;
  /**
   * Gives a sandbox a network of its own, for connections that begin from now on. It ends with the sandbox.
   */
  stage(sandbox: SandboxId, stage: Stage): void;
  /** Cuts everything. */
  close(): void;
}

const DEFAULT_LIMITS: EgressLimits = { connections: 512, connectionsPerMinute: 12_000, namesPerMinute: 300 };
const DEFAULT_TIMEOUTS: EgressTimeouts = {
  connectMs: 10_000,
  firstBytesMs: 30_000,
  idleMs: 15 * 60_000,
  totalMs: 24 * 3_600_000,
  askMs: 60_000,
};
/** Attempts of one project that are kept in memory, by all its sandboxes together. */
const PROJECT_ATTEMPTS = 50_000;
const LOOKUPS_PER_MINUTE = 30_000;
/**
 * What lookups of one project may take of each minute. One takes microseconds, but the policy decides how
 * many, and with as many rules as it can have for one name, milliseconds.
 */
const LOOKUP_MS_PER_MINUTE = 6_000;
const TICK_MS = 1000;
const MAX_LISTED_PORTS = 64;

export function openEgress(options: EgressOptions = {}): OpenedEgress {
  const clock = options.clock ?? openClock();
  const http1 = openHttp1Proxy();
  const http2 = openHttp2Proxy();
  const terminating = (trusted: readonly string[]): TlsTermination | undefined =>
    options.authority && terminateTls({ authority: options.authority, trusted, http1, http2 });
  const secrets = options.secrets ?? (() => []);
  const engine: Engine = {
    clock,
    timeouts: { ...DEFAULT_TIMEOUTS, ...options.timeouts },
    resolver: options.resolver ?? nameResolver({ clock }),
    classify: options.classify ?? addressBook(clock),
    proxy: options.proxy,
    ask: options.ask,
    http1: (stream, connection) => http1.take(stream, connection),
    http2: (stream, connection) => http2.take(stream, connection),
    tls: terminating(options.trusted ?? []),
    ssh: options.sshHostKey === undefined ? undefined : sshProxy(options.sshHostKey),
    secrets,
    broker: putSecrets,
  };
  const peers = new Peers();
  const stages = new Map<SandboxId, Engine>();
  const sandboxes = new Map<SandboxId, SandboxEgress>();
  const given = new Map<SandboxId, readonly NetworkPolicy[]>();
  const lookups = new Map<SandboxId, Window>();
  const compiled = compiledPolicies(options);
  const carriage = projectCarriage(clock);

  const timer = setInterval(() => {
    for (const sandbox of sandboxes.values()) {
      sandbox.expireGrants();
      for (const connection of [...sandbox.connections]) connection.tick();
    }
  }, TICK_MS).unref();

  function remove(id: SandboxId, denial: Denial): void {
    const sandbox = sandboxes.get(id);
    if (sandbox) carriage.leave(sandbox.project);
    sandboxes.delete(id);
    const project = peers.projectOf(id);
    if (peers.remove(id)) recheckPeers(sandboxes, peers, [id], [project]);
    given.delete(id);
    compiled.keep(id, []);
    lookups.delete(id);
    stages.delete(id);
    for (const connection of [...(sandbox?.connections ?? [])]) connection.cut(denial);
    // What has just begun finds no policy.
    sandbox?.setLayers([]);
  }

  /** What every stream of a guest needs; refuses one that lacks it. */
  function take(
    id: SandboxId,
    stream: CarriedStream,
    checked: ConnectionTarget | undefined,
  ): { sandbox: SandboxEgress; checked: ConnectionTarget } | undefined {
    const sandbox = sandboxes.get(id);
    // A stream whose guest goes away must not end the server.
    stream.duplex.on('error', () => {});
    const denial = !sandbox
      ? new Denial('no_policy', 'This sandbox has no network policy')
      : !checked
        ? new Denial('invalid_target', 'That is no name, address and port')
        : // Those that wait for an explanation are not counted as connections; they are bounded all the same.
          sandbox.connections.size >= 2 * (sandbox.budget.limits.connections ?? 512)
          ? new Denial('limit', 'Too many connections are open')
          : undefined;
    if (!denial) return { sandbox: sandbox!, checked: checked! };
    stream.refuse(denial.toError());
    return undefined;
  }

  return {
    certificate: options.authority?.certificate,
    policies: {
      set(id, policies, { project = id } = {}) {
        const layers = policies.map(compiled.compile);
        let sandbox = sandboxes.get(id);
        if (!sandbox) {
          sandbox = new SandboxEgress(id, carriage.join(project), {
            clock,
            presets: options.presets,
            limits: { ...DEFAULT_LIMITS, ...options.limits },
            keepAttempts: () =>
              Math.min(
                options.keepAttempts ?? 1000,
                Math.max(10, Math.floor(PROJECT_ATTEMPTS / carriage.sandboxes(project))),
              ),
            onAttempt: options.onAttempt ?? (() => {}),
          });
          sandboxes.set(id, sandbox);
          lookups.set(id, new Window(clock));
        }
        given.set(id, policies);
        compiled.keep(id, layers);
        sandbox.setLayers(layers.map(({ layer }) => layer));
      },
      get: (id) => given.get(id),
      remove: (id) => remove(id, new Denial('no_policy', 'The sandbox is being removed')),
    },
    networks: {
      set(id, member) {
        const before = peers.projectOf(id);
        if (peers.set(id, member)) recheckPeers(sandboxes, peers, [id], [before, member.project]);
      },
    },
    projects: carriage,
    grant(id, rule, expiresAt) {
      sandboxes.get(id)?.grant({ rule, expiresAt });
    },
    grants: (id) => sandboxes.get(id)?.grants ?? [],
    attempts: (id) => sandboxes.get(id)?.attempts.list() ?? [],
    stats(id) {
      const sandbox = sandboxes.get(id);
      return (
        sandbox && {
          connections: sandbox.connections.size,
          ...sandbox.attempts.counts,
          bytesOut: sandbox.budget.bytes.out,
          bytesIn: sandbox.budget.bytes.in,
        }
      );
    },
    stage(id, { trusted, timeouts, ...replaced }) {
      stages.set(id, {
        ...engine,
        // A sandbox with a network of its own does not go out by the operator's proxy.
        proxy: undefined,
        ...replaced,
        resolver: replaced.resolver ?? engine.resolver,
        classify: replaced.classify ?? engine.classify,
        secrets: replaced.secrets ?? engine.secrets,
        timeouts: { ...engine.timeouts, ...timeouts },
        ...(trusted && { tls: terminating(trusted) }),
      });
    },
    async lookup(id, query) {
      const sandbox = sandboxes.get(id);
      if (!sandbox || !lookups.get(id)!.add(1, LOOKUPS_PER_MINUTE)) return { kind: 'absent' };
      const peer = options.peers && peers.find(id, query.name);
      if (peer) return { kind: 'address', ports: await options.peers.ports(peer.id), anyPort: true };
      const name = normalizeName(query.name);
      const spent = carriage.lookups(sandbox.project);
      if (name === undefined || !spent.add(0, LOOKUP_MS_PER_MINUTE)) return { kind: 'absent' };
      const begun = performance.now();
      try {
        return answerLookup(sandbox, name);
      } finally {
        spent.add(performance.now() - begun, undefined);
      }
    },
    datagrams(id, target, stream) {
      const taken = take(id, stream, checkTarget(target, false));
      if (!taken) return;
      // It reports its failures itself.
      new DatagramFlow(stages.get(id) ?? engine, taken.sandbox, taken.checked, stream)
        .carry()
        .catch(() => stream.duplex.destroy());
    },
    connect(id, target, stream) {
      const peer = target.name !== undefined && options.peers && peers.find(id, target.name);
      const taken = take(id, stream, checkTarget(target, peer !== undefined));
      if (!taken) return;
      const { sandbox, checked } = taken;
      if (peer) {
        const find = () => peers.find(id, target.name!);
        const { port, process } = checked;
        const connection = new PeerConnection(
          engine,
          sandbox,
          { name: target.name!, port, process, find },
          stream,
        );
        connection.carry(options.peers!).catch(() => stream.duplex.destroy());
        return;
      }
      // It reports its failures itself.
      new Connection(stages.get(id) ?? engine, sandbox, checked, stream)
        .carry()
        .catch(() => stream.duplex.destroy());
    },
    close() {
      clearInterval(timer);
      carriage.close();
      for (const id of [...sandboxes.keys()]) remove(id, new Denial('closed', 'The server is stopping'));
      http1.close();
      http2.close();
    },
  };
}

/** A tenant may change members often: nobody outside of its project is looked at. */
function recheckPeers(
  sandboxes: ReadonlyMap<SandboxId, SandboxEgress>,
  peers: Peers,
  changed: readonly SandboxId[],
  projects: readonly (string | undefined)[],
): void {
  const ids = new Set(changed);
  for (const project of projects)
    if (project !== undefined) for (const id of peers.inProject(project)) ids.add(id);
  for (const id of ids) sandboxes.get(id)?.recheckPeers();
}

function answerLookup(sandbox: SandboxEgress, name: string): EgressLookupAnswer {
  const { policy } = sandbox;
  // A refused name has these two as well, where its refusal can be explained.
  const ports = new Set([80, 443]);
  let anyPort = policy.layers.length > 0;
  for (const { allow, base, otherwise } of policy.layers) {
    let wide = otherwise === 'ask';
    for (const [low, high] of [...allow.portsOf(name), ...base.portsOf(name)]) {
      if (high - low >= MAX_LISTED_PORTS) wide = true;
      else for (let port = low; port <= high && ports.size < MAX_LISTED_PORTS; port++) ports.add(port);
    }
    anyPort &&= wide;
  }
  const open = [...ports].filter(
    (port) => port === 80 || port === 443 || decideName(policy, name, port).verdict !== 'deny',
  );
  const udpPorts = udpPortsOf(policy, name);
  return {
    kind: 'address',
    ports: open,
    ...(udpPorts.length > 0 && { udpPorts }),
    ...(anyPort && { anyPort }),
  };
}

/** The sandbox's own policy has every port that is allowed. */
function udpPortsOf(policy: Layers, name: string): number[] {
  const [own] = policy.layers;
  if (!own || own.udp.allow.size === 0) return [];
  const layers = udpLayers(policy);
  const all = new Set(
    own.udp.allow
      .portsOf(name)
      .flatMap(([low, high]) => Array.from({ length: high - low + 1 }, (_, at) => low + at)),
  );
  return [...all]
    .slice(0, MAX_LISTED_PORTS)
    .filter((port) => decideName(layers, name, port).verdict === 'allow');
}

function checkTarget(
  { name, address, port, process }: EgressTarget,
  isPeer: boolean,
): ConnectionTarget | undefined {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return undefined;
  const shown = process?.slice(0, 256);
  if (name !== undefined) {
    const normal = isPeer ? name : normalizeName(name);
    return normal === undefined ? undefined : { name: normal, address: undefined, port, process: shown };
  }
  const canonical = address === undefined ? undefined : canonicalAddress(address);
  return canonical === undefined ? undefined : { name: undefined, address: canonical, port, process: shown };
}
