/**
 * Makes programs of a sandbox trust the installation's authority. The server needs that where a rule looks at
 * requests, and to explain in a page why HTTPS is denied; TLS of everything else is passed on as it is.
 *
 * Three files in `/run` and the variables that name them do it. Files that belong to the sandbox stay as they are.
 */
import { isCayError } from '@cay/sdk/protocol';
import type { StartedEgress } from '../../egress/start-egress.ts';
import type { Files, Guest } from '../../guest/guest.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Networks } from './networks.ts';

/** Puts the certificates inside if they are not there yet, and resolves what commands find in their environment. */
export type TrustAuthority = (row: SandboxRow, guest: Guest) => Promise<Record<string, string>>;

/** The authority alone, for programs that add it to what they trust. */
const AUTHORITY = '/run/cay-authority.crt';
/** The sandbox's own certificates and the authority's, for programs that trust one file. */
const BUNDLE = '/run/cay-ca-certificates.crt';
const APT = '/run/cay-apt.conf';
/** The server's key as an SSH host, for names that it logs in to with a stored key. */
const KNOWN_HOSTS = '/run/cay-known-hosts';
const SSH_ENV = {
  GIT_SSH_COMMAND: `ssh -o "UserKnownHostsFile=${KNOWN_HOSTS} ~/.ssh/known_hosts"`,
};
/** Where systems have theirs. */
const SYSTEM_BUNDLES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt'];
const MAX_BUNDLE_BYTES = 4 * 1024 * 1024;
const ENV = {
  NODE_EXTRA_CA_CERTS: AUTHORITY,
  DENO_CERT: AUTHORITY,
  APT_CONFIG: APT,
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
    ].map((name) => [name, BUNDLE]),
  ),
};
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
  /** By sandbox: the start that has the files. A start begins with the files of its tree, whatever was before. */
  const known = new Map<string, { start: string; done: Promise<boolean> }>();

  async function put(guest: Guest, certificate: string, knownHosts: string): Promise<boolean> {
    try {
      const files = guest.files('root');
      if (knownHosts !== '') await files.write(KNOWN_HOSTS, Buffer.from(knownHosts), { mode: 0o644 });
      // Written last, so that all are there if it is.
      if ((await textOf(files, AUTHORITY)) === certificate) return true;
      const write = (path: string, text: string) => files.write(path, Buffer.from(text), { mode: 0o644 });
      await Promise.all([
        write(BUNDLE, `${await systemBundle(files)}\n${certificate}`),
        write(APT, `Acquire::https::CAInfo "${BUNDLE}";\n`),
      ]);
      await write(AUTHORITY, certificate);
      return true;
    } catch (error) {
      // The command runs all the same; TLS that the server terminates fails with an unknown certificate.
      onError(error);
      return false;
    }
  }

  return async (row, guest) => {
    if (!egress || row.network === null || row.network === 'none') return {};
    const targets = networks.sshTargetsOf(row.id);
    const knownHosts = targets.map((target) => `${target} ${egress.sshHostKey}\n`).join('');
    const start = `${row.incarnation}/${row.startedAtMs}/${knownHosts}`;
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

async function systemBundle(files: Files): Promise<string> {
  for (const path of SYSTEM_BUNDLES) {
    const text = await textOf(files, path);
    if (text !== undefined) return text;
  }
  return '';
}

/** Undefined if there is none, or too much of it. */
async function textOf(files: Files, path: string): Promise<string | undefined> {
  try {
    const { data } = await files.read(path);
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of data) {
      bytes += chunk.length;
      if (bytes > MAX_BUNDLE_BYTES) return undefined;
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString();
  } catch (error) {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  }
}
