/** Sandboxes as E2B's API shows them. */
import { availableParallelism, totalmem } from 'node:os';
import type { NetworkPolicy, Sandbox, SandboxState } from '@cay/sdk/protocol';
import type { AccessTokens } from '../access-tokens.ts';
import { AUTO_RESUME, MASK_HOST, PUBLIC_TRAFFIC, TEMPLATE, toMetadata } from '../labels.ts';
import { showNetwork } from './network.ts';
import { toE2bId } from '../sandbox-id.ts';

/** The version of envd by which clients decide what they can use. All of this version works here. */
export const ENVD_VERSION = '0.6.13';
/** Clients send or read a client id, and none uses it. */
const CLIENT_ID = 'cay';
/** For sandboxes without an end; clients expect a date. */
const NEVER = '9999-12-31T23:59:59Z';
const MIB = 1024 * 1024;

/**
 * Stopped and failed sandboxes keep their files and run again when a client connects, which E2B calls paused.
 */
export function e2bState(state: SandboxState): 'running' | 'paused' | undefined {
  switch (state) {
    case 'active':
      return 'running';
    case 'paused':
    case 'stopped':
    case 'failed':
      return 'paused';
    case 'creating':
    case 'destroying':
      return undefined;
  }
}

/** Access to a sandbox, as creating, connecting and forking answer it. */
export async function showAccess(sandbox: Sandbox, tokens: AccessTokens, domain: string) {
  return {
    sandboxID: toE2bId(sandbox.id),
    templateID: templateOf(sandbox),
    alias: templateOf(sandbox),
    clientID: CLIENT_ID,
    envdVersion: ENVD_VERSION,
    envdAccessToken: await tokens.envd(sandbox.id),
    // Given for public ports too: the port of the code interpreter is never public, and its clients send this
    // token.
    trafficAccessToken: await tokens.traffic(sandbox.id),
    domain,
  };
}

export function showListed(sandbox: Sandbox) {
  const { limits } = sandbox;
  const startedAtMs = sandbox.startedAtMs ?? sandbox.createdAtMs;
  const endAtMs = sandbox.state === 'active' ? sandbox.expiresAtMs : startedAtMs + (sandbox.timeoutMs ?? 0);
  return {
    sandboxID: toE2bId(sandbox.id),
    templateID: templateOf(sandbox),
    alias: templateOf(sandbox),
    clientID: CLIENT_ID,
    startedAt: new Date(startedAtMs).toISOString(),
    endAt: endAtMs === null ? NEVER : new Date(endAtMs).toISOString(),
    state: e2bState(sandbox.state) ?? 'running',
    cpuCount: cpuCount(sandbox),
    memoryMB: Math.floor((limits.memoryBytes ?? totalmem()) / MIB),
    diskSizeMB: Math.floor((limits.diskBytes ?? 0) / MIB),
    envdVersion: ENVD_VERSION,
    metadata: toMetadata(sandbox.labels),
    volumeMounts: sandbox.mounts.flatMap((mount) =>
      mount.type === 'volume' ? [{ name: mount.name ?? mount.volume, path: mount.path }] : [],
    ),
  };
}

export async function showDetail(
  sandbox: Sandbox,
  policy: NetworkPolicy,
  tokens: AccessTokens,
  domain: string,
) {
  const { allowInternetAccess, ...out } = showNetwork(policy);
  const mask = sandbox.labels[MASK_HOST];
  return {
    ...showListed(sandbox),
    envdAccessToken: await tokens.envd(sandbox.id),
    domain,
    allowInternetAccess,
    network: {
      allowPublicTraffic: isPublic(sandbox),
      ...(mask !== undefined && { maskRequestHost: mask }),
      ...out,
    },
    lifecycle: {
      onTimeout: sandbox.onTimeout === 'destroy' ? 'kill' : 'pause',
      autoResume: sandbox.labels[AUTO_RESUME] === 'true',
    },
  };
}

export function templateOf({ labels, template }: Pick<Sandbox, 'labels' | 'template'>): string {
  return labels[TEMPLATE] ?? template;
}

export function isPublic({ labels }: Pick<Sandbox, 'labels'>): boolean {
  return labels[PUBLIC_TRAFFIC] === 'true';
}

/** E2B counts whole CPUs. */
export function cpuCount({ limits }: Pick<Sandbox, 'limits'>): number {
  return Math.max(1, Math.ceil(limits.cpus ?? availableParallelism()));
}
