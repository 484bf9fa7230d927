/**
 * Makes programs of a sandbox trust the installation's authority. The server needs that where a rule looks at
 * requests, and to explain in a page why HTTPS is denied; TLS of everything else is passed on as it is.
 *
 * Three files in `/run` and the variables that name them do it (`guest/trust-files.ts`). Instances of the
 * warm pool have the files already.
 */
import { createHash } from 'node:crypto';
import type { StartedEgress } from '../../egress/start-egress.ts';
import type { Guest } from '../../guest/guest.ts';
import { APT_FILE, AUTHORITY_FILE, BUNDLE_FILE, putTrustFiles } from '../../guest/trust-files.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Networks } from './networks.ts';

/**
 * Puts the certificates inside if they are not there yet, and resolves what commands find in their
 * environment.
 */
export type TrustAuthority = (row: SandboxRow, guest: Guest) => Promise<Record<string, string>>;

/** The server's key as an SSH host, for names that it logs in to with a stored key. */
const KNOWN_HOSTS = '/run/cay-known-hosts';
const SSH_ENV = {
  GIT_SSH_COMMAND: `ssh -o "UserKnownHostsFile=${KNOWN_HOSTS} ~/.ssh/known_hosts"`,
};
const ENV = {
  NODE_EXTRA_CA_CERTS: AUTHORITY_FILE,
  DENO_CERT: AUTHORITY_FILE,
  APT_CONFIG: APT_FILE,
  ...Object.fromEntries(
    [
      'SSL_CERT_FILE',
      'CURL_CA_BUNDLE',
      'REQUESTS_CA_BUNDLE',
      'GIT_SSL_CAINFO',
      'PIP_CERT',
      'CARGO_HTTP_CAINFO',
      'AWS_CA_BUNDLE',
      // A configured "cafile" makes npm ignore NODE_EXTRA_CA_CERTS.
      'NPM_CONFIG_CAFILE',
      'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH',
    ].map((name) => [name, BUNDLE_FILE]),
  ),
};
interface Hosts {
  text: string;
  digest: string;
}

/** Starts of sandboxes whose files were looked at. */
const MAX_KNOWN = 10_000;

export function trustAuthority({
  egress,
  networks,
  onError,
}: {
  egress: StartedEgress | undefined;
  networks: Pick<Networks, 'environmentOf' | 'sshTargetsOf'>;
  onError(error: unknown): void;
}): TrustAuthority {
  /**
   * By sandbox: the start that has the files. A start begins with the files of its tree, whatever was before.
   */
  const known = new Map<string, { start: string; done: Promise<boolean> }>();
  /** As long as the policy is there that has the targets. */
  const hosts = new WeakMap<readonly string[], Hosts>();

  /**
   * A policy can name very many, and every command asks: they are put together once, and only a digest is
   * kept.
   */
  function hostsOf(targets: readonly string[], key: string): Hosts {
    const before = hosts.get(targets);
    if (before) return before;
    const text = targets.map((target) => `${target} ${key}\n`).join('');
    const made = { text, digest: createHash('sha256').update(text).digest('base64') };
    hosts.set(targets, made);
    return made;
  }

  async function put(guest: Guest, certificate: string, knownHosts: string): Promise<boolean> {
    try {
      const files = guest.files('root');
      if (knownHosts !== '') await files.write(KNOWN_HOSTS, Buffer.from(knownHosts), { mode: 0o644 });
      await putTrustFiles(files, certificate);
      return true;
    } catch (error) {
      // The command runs all the same; TLS that the server terminates fails with an unknown certificate.
      onError(error);
      return false;
    }
  }

  return async (row, guest) => {
    if (!egress || row.network === null) return {};
    const targets = networks.sshTargetsOf(row.id);
    const { text: knownHosts, digest } = hostsOf(targets, egress.sshHostKey);
    const start = `${row.incarnation}/${row.startedAtMs}/${digest}`;
    let one = known.get(row.id);
    if (one?.start !== start) {
      one = { start, done: put(guest, egress.certificate, knownHosts) };
      known.set(row.id, one);
      if (known.size > MAX_KNOWN) known.delete(known.keys().next().value!);
    }
    const isThere = await one.done;
    if (!isThere) known.delete(row.id);
    return {
      ...(isThere && ENV),
      ...(isThere && knownHosts !== '' && SSH_ENV),
      ...networks.environmentOf(row.id),
    };
  };
}
