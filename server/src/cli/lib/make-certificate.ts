/**
 * A development certificate for every name below a domain, made with the `openssl` command: an authority of
 * its own, which may speak for that domain alone and whose private key is thrown away as soon as it has
 * signed. Who trusts it trusts this one certificate and nothing else.
 */
import { X509Certificate } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { RunError, run } from '../../lib/run.ts';

export interface CertificateFiles {
  certificate: string;
  key: string;
  /** What clients have to trust. */
  authority: string;
}

export interface Certificate extends CertificateFiles {
  validUntilMs: number;
}

/** As long as browsers accept. */
const DAYS = 397;
const ENOUGH_MS = 14 * 24 * 3600 * 1000;
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

const filesIn = (directory: string): CertificateFiles => ({
  certificate: join(directory, 'cert.pem'),
  key: join(directory, 'key.pem'),
  authority: join(directory, 'ca.pem'),
});

/** The one that is there and will be valid for a while. */
export async function findCertificate(directory: string, now = Date.now()): Promise<Certificate | undefined> {
  const files = filesIn(directory);
  try {
    const [certificate] = await Promise.all([
      readFile(files.certificate),
      readFile(files.key),
      readFile(files.authority),
    ]);
    const validUntilMs = new X509Certificate(certificate).validToDate.getTime();
    return validUntilMs - now > ENOUGH_MS ? { ...files, validUntilMs } : undefined;
  } catch {
    return undefined;
  }
}

export async function makeCertificate(directory: string, domain: string): Promise<Certificate> {
  await mkdir(directory, { recursive: true, mode: 0o755 });
  const scratch = await mkdtemp(join(directory, '.new-'));
  const files = filesIn(scratch);
  const at = (name: string) => join(scratch, name);
  try {
    await writeFile(at('openssl.cnf'), configuration(domain));
    const shared = ['-config', at('openssl.cnf'), '-days', String(DAYS)];
    await openssl(
      'req',
      '-x509',
      ...KEY,
      ...shared,
      '-extensions',
      'authority',
      '-subj',
      `/CN=Cay development, ${domain}`.slice(0, 68),
      ...out('ca.key', files.authority),
    );
    await openssl(
      'req',
      ...KEY,
      '-config',
      at('openssl.cnf'),
      '-subj',
      `/CN=${domain}`.slice(0, 68),
      '-keyout',
      files.key,
      '-out',
      at('request'),
    );
    const signing = [
      '-CA',
      files.authority,
      '-CAkey',
      at('ca.key'),
      '-set_serial',
      `0x${serial()}`,
      '-days',
      String(DAYS),
    ];
    await openssl(
      'x509',
      '-req',
      '-in',
      at('request'),
      ...signing,
      '-extfile',
      at('openssl.cnf'),
      '-extensions',
      'server',
      '-out',
      files.certificate,
    );
    await chmod(files.key, 0o600);
    for (const name of ['certificate', 'authority'] as const) await chmod(files[name], 0o644);
    const target = filesIn(directory);
    for (const name of ['key', 'certificate', 'authority'] as const) await rename(files[name], target[name]);
    return {
      ...target,
      validUntilMs: new X509Certificate(await readFile(target.certificate)).validToDate.getTime(),
    };
  } finally {
    // The authority's key is among it.
    await rm(scratch, { recursive: true, force: true });
  }

  function out(key: string, certificate: string): string[] {
    return ['-keyout', at(key), '-out', certificate];
  }
}

function serial(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(15))).toString('hex');
}

function configuration(domain: string): string {
  return `[req]
distinguished_name = name
prompt = no
[name]
CN = ${domain}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
nameConstraints = critical, permitted;DNS:${domain}
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:${domain}, DNS:*.${domain}, IP:127.0.0.1, IP:::1
`;
}

async function openssl(...args: string[]): Promise<void> {
  try {
    await run('openssl', args, { timeoutMs: 30_000 });
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    throw new CayError(
      'failed_precondition',
      `Cannot make the certificate: ${error.errno === 'ENOENT' ? 'there is no "openssl" here' : error.message}`,
      {
        hint: error.errno === 'ENOENT' ? 'install openssl' : undefined,
        cause: error,
      },
    );
  }
}
