/**
 * Makes programs of a sandbox trust the installation's authority, where a rule makes the server terminate TLS.
 * Elsewhere they see the real certificates, and nothing is put inside.
 */
import { isCayError, type NetworkPolicy, type NetworkRule } from '@cay/sdk/protocol';
import type { StartedEgress } from '../../egress/start-egress.ts';
import type { Files, Guest } from '../../guest/guest.ts';
import type { Records } from '../../records/records.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Networks } from './networks.ts';

/** Puts the certificates inside if they are needed, and resolves the variables that name them. */
export type TrustAuthority = (row: SandboxRow, guest: Guest) => Promise<Record<string, string>>;

const BUNDLE = '/run/cay-ca-certificates.crt';
/** Where systems have theirs. */
const SYSTEM_BUNDLES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt'];
const MAX_BUNDLE_BYTES = 4 * 1024 * 1024;
const VARIABLES = [
  'SSL_CERT_FILE',
  'CURL_CA_BUNDLE',
  'REQUESTS_CA_BUNDLE',
  'NODE_EXTRA_CA_CERTS',
  'GIT_SSL_CAINFO',
  'PIP_CERT',
  'CARGO_HTTP_CAINFO',
  'DENO_CERT',
];
const ENV = Object.fromEntries(VARIABLES.map((name) => [name, BUNDLE]));

export function trustAuthority({
  egress,
  networks,
  records,
  onError,
}: {
  egress: StartedEgress | undefined;
  networks: Pick<Networks, 'environmentOf'>;
  records: Pick<Records, 'projects'>;
  onError(error: unknown): void;
}): TrustAuthority {
  return async (row, guest) => {
    if (!egress || row.network === null || row.network === 'none') return {};
    const project = await records.projects.get(row.project);
    if (![row.network, row.templateNetwork, project?.network, egress.maximum].some(terminates)) return {};
    try {
      const files = guest.files('root');
      if (!(await isThere(files, egress.certificate)))
        await files.write(BUNDLE, Buffer.from(`${await systemBundle(files)}\n${egress.certificate}`), {
          mode: 0o644,
        });
      return { ...ENV, ...networks.environmentOf(row.id) };
    } catch (error) {
      // The command runs all the same; requests to such targets fail with an unknown certificate.
      onError(error);
      return {};
    }
  };
}

/** Whether a rule looks at requests, for which TLS is terminated. */
function terminates(policy: NetworkPolicy | null | undefined): boolean {
  if (policy == null || typeof policy === 'string') return false;
  return [...(policy.allow ?? []), ...(policy.deny ?? [])].some(looksAtRequests);
}

function looksAtRequests(rule: NetworkRule): boolean {
  if (typeof rule === 'string') return hasPath(rule);
  return Boolean(rule.methods ?? rule.paths ?? rule.headers ?? rule.put) || hasPath(rule.to);
}

/** A network in CIDR form has a slash too, and digits behind it. */
const hasPath = (target: string) => /\/(?!\d+\]?(:|$))/.test(target.replace(/^https?:\/\//, ''));

/** A sandbox can be from another installation, or have another file there. */
async function isThere(files: Files, certificate: string): Promise<boolean> {
  const text = await textOf(files, BUNDLE);
  return text?.endsWith(certificate) ?? false;
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
