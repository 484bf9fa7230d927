/**
 * The egress of a server: the engine, and what the operator decided about it. It is opened before the
 * backends, which hand it what guests say, and the control plane listens to it later.
 */
import { readFile } from 'node:fs/promises';
import type { EgressAttempt, NetworkPolicy, SandboxId } from '@cay/sdk/protocol';
import { writeFileAtomic } from '../lib/atomic-file.ts';
import type { SealedBox } from '../lib/sealed-box.ts';
import type { BrokeredSecret } from './broker/broker.ts';
import { type EgressOptions, openEgress, type OpenedEgress } from './open-egress.ts';
import { compilePolicy } from './policy/compile-policy.ts';
import type { PeerAccess } from './peers.ts';
import type { Ask } from './sandbox-egress.ts';
import { sshHostKey } from './ssh/host-key.ts';
import { type AuthorityStore, storedAuthority } from './tls/stored-authority.ts';

export interface EgressListeners {
  onAttempt(attempt: EgressAttempt): void;
  ask: Ask;
  /** How sandboxes of one named network are reached. */
  peers: PeerAccess;
  /** The secrets that may be put on requests of a sandbox. */
  secrets: (id: SandboxId) => readonly BrokeredSecret[];
}

export interface StartedEgress {
  readonly engine: OpenedEgress;
  /** The policy of sandboxes that ask for none. */
  readonly usual: NetworkPolicy;
  /** The most that any sandbox reaches: the last layer of each. */
  readonly maximum: NetworkPolicy;
  /** The certificate of the installation's authority, in PEM. */
  readonly certificate: string;
  /** The key of the server as an SSH host, as `known_hosts` has it after the name. */
  readonly sshHostKey: string;
  /** Sets who gets attempts and approvals. Before this call attempts are dropped, and what asks is denied. */
  listen(listeners: EgressListeners): void;
}

export interface StartEgressOptions extends Omit<
  EgressOptions,
  'authority' | 'sshHostKey' | 'ask' | 'onAttempt' | 'peers' | 'secrets'
> {
  /** Where the authority is kept, sealed. No other server may start with the same file at the same time. */
  readonly authorityFile: string;
  readonly box: SealedBox;
  /** Default `packages`. */
  readonly usual?: NetworkPolicy | undefined;
  /** Default `public`. */
  readonly maximum?: NetworkPolicy | undefined;
}

export async function startEgress(options: StartEgressOptions): Promise<StartedEgress> {
  const { authorityFile, box, usual = 'packages', maximum = 'public', ...engineOptions } = options;
  for (const policy of [usual, maximum]) compilePolicy(policy, options);
  const authority = await storedAuthority(fileStore(authorityFile), box);
  // Derived, so that there is one thing less to keep: whoever has the authority's key is the server for
  // sandboxes.
  const ssh = sshHostKey(Buffer.from(box.digest(`ssh host key ${authority.certificate}`), 'hex'));
  let listeners: EgressListeners | undefined;
  const engine = openEgress({
    ...engineOptions,
    authority,
    sshHostKey: ssh.privateKey,
    secrets: (id) => listeners?.secrets(id) ?? [],
    onAttempt: (attempt) => listeners?.onAttempt(attempt),
    peers: {
      ports: async (id) => listeners?.peers.ports(id) ?? [],
      async connect(id, port, signal) {
        if (!listeners) throw new Error('the server has just started');
        return listeners.peers.connect(id, port, signal);
      },
    },
    ask: async (approval) => (listeners ? listeners.ask(approval) : 'deny'),
  });
  return {
    engine,
    usual,
    maximum,
    certificate: authority.certificate,
    sshHostKey: ssh.publicKey,
    listen(given) {
      listeners = given;
    },
  };
}

function fileStore(path: string): AuthorityStore {
  return {
    async read() {
      try {
        return await readFile(path, 'utf8');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw error;
      }
    },
    async write(sealed) {
      await writeFileAtomic(path, sealed, { mode: 0o600 });
      return sealed;
    },
  };
}
