import { readFileSync } from 'node:fs';
import type { SecureContextOptions } from 'node:tls';

/**
 * What a connection trusts beside the usual authorities: the one certificate in a file, whoever has signed
 * it. A file that cannot be read adds nothing, and the connection says whether its certificate is trusted.
 */
export function trusting(
  certificate: string | undefined,
): Pick<SecureContextOptions, 'ca' | 'allowPartialTrustChain'> {
  if (certificate === undefined) return {};
  try {
    // Loaded here: few speak TLS to the server of their machine, and loading it takes long.
    const { getCACertificates } = process.getBuiltinModule('node:tls');
    const own = readFileSync(certificate, 'utf8');
    return { ca: [...getCACertificates('default'), own], allowPartialTrustChain: true };
  } catch {
    return {};
  }
}
