/**
 * Named networks: which sandboxes reach each other by name. Those of one network of one project do, and no
 * others.
 *
 * A *peer* of a sandbox is another one that shares a network with it. It is called by its hostname, a name
 * without a dot, so that it is never mistaken for a name of the internet.
 */
import type { Duplex } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import type { SandboxId } from '@cay/sdk/protocol';

export interface Member {
  readonly project: string;
  /** What it calls itself: one label, in lower case. */
  readonly hostname: string;
  readonly networks: readonly string[];
}

export interface Peer {
  readonly id: SandboxId;
  /** The network that both are in. */
  readonly network: string;
}

/** How the peers of sandboxes are reached. */
export interface PeerAccess {
  /** The ports that something listens on in a sandbox. It settles soon, and wakes nothing. */
  ports(id: SandboxId): Promise<readonly number[]>;
  /** Connects to a port of a sandbox, and wakes it if it is paused. */
  connect(id: SandboxId, port: number, signal: AbortSignal): Promise<Duplex>;
}

export class Peers {
  readonly #members = new Map<SandboxId, Member>();
  readonly #projects = new Map<string, Set<SandboxId>>();
  /** By project, network and hostname. */
  readonly #names = new Map<string, Map<string, SandboxId>>();

  /** Answers whether anything has changed. */
  set(id: SandboxId, member: Member): boolean {
    const before = this.#members.get(id);
    if (before ? isDeepStrictEqual(before, member) : member.networks.length === 0) return false;
    this.remove(id);
    if (member.networks.length === 0) return true;
    this.#members.set(id, member);
    const inProject = this.#projects.get(member.project);
    if (inProject) inProject.add(id);
    else this.#projects.set(member.project, new Set([id]));
    for (const network of member.networks) {
      const key = keyOf(member.project, network);
      let names = this.#names.get(key);
      if (!names) this.#names.set(key, (names = new Map()));
      names.set(member.hostname, id);
    }
    return true;
  }

  /** Answers whether it was a member of any network. */
  remove(id: SandboxId): boolean {
    const member = this.#members.get(id);
    if (!member) return false;
    this.#members.delete(id);
    const inProject = this.#projects.get(member.project)!;
    inProject.delete(id);
    if (inProject.size === 0) this.#projects.delete(member.project);
    for (const network of member.networks) {
      const key = keyOf(member.project, network);
      const names = this.#names.get(key);
      if (names?.get(member.hostname) === id) names.delete(member.hostname);
      if (names?.size === 0) this.#names.delete(key);
    }
    return true;
  }

  /** The members of any network of a project. */
  inProject(project: string): Iterable<SandboxId> {
    return this.#projects.get(project) ?? [];
  }

  projectOf(id: SandboxId): string | undefined {
    return this.#members.get(id)?.project;
  }

  /** The peer of a sandbox with this hostname. A sandbox is a peer of itself. */
  find(id: SandboxId, hostname: string): Peer | undefined {
    const member = this.#members.get(id);
    for (const network of member?.networks ?? []) {
      const found = this.#names.get(keyOf(member!.project, network))?.get(hostname);
      if (found !== undefined) return { id: found, network };
    }
    return undefined;
  }
}

const keyOf = (project: string, network: string) => `${project}/${network}`;
