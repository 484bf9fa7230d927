import { join } from 'node:path';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { findCertificate, makeCertificate } from '../lib/make-certificate.ts';
import { note, print, printJson } from '../lib/output.ts';
import { dataDirOf, listenOf, type CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  renew?: boolean;
}

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

export const certVerb: Verb = (program) => {
  const command = program
    .command('cert')
    .description(
      'make a certificate for every name below a domain, to try previews and E2B_DOMAIN over TLS; needs openssl',
    )
    .argument('<domain>', 'such as sbx.localhost')
    .option('--renew', 'make another also if there is one that is valid');
  withCommonOptions(command).action(async (text: string, options: Options) => {
    if (options.url !== undefined)
      throw usageError('"cert" makes a certificate on this machine and takes no --url');
    const domain = domainOf(text);
    const directory = join(dataDirOf(options), 'certificates', domain);
    const known = options.renew ? undefined : await findCertificate(directory);
    const made = known ?? (await makeCertificate(directory, domain));
    if (options.json) return printJson({ domain, ...made, existing: known !== undefined });
    print(`certificate  ${made.certificate}`);
    print(`private key  ${made.key}`);
    print(`authority    ${made.authority}`);
    print(`valid until  ${new Date(made.validUntilMs).toISOString().slice(0, 10)}`);
    const { port } = listenOf();
    note(`
The server takes it with
  cay up --tls-cert ${made.certificate} --tls-key ${made.key} --preview-domain ${domain}
and clients trust it with
  export NODE_EXTRA_CA_CERTS=${made.authority}    # Node
  export SSL_CERT_FILE=${made.authority}          # Python
  export E2B_DOMAIN=${domain}:${port}`);
  });
};

/** A wildcard directly below a top-level domain is refused by clients. */
function domainOf(text: string): string {
  const domain = text.toLowerCase().replace(/^\*\./, '');
  const labels = domain.split('.');
  if (labels.length >= 2 && domain.length <= 200 && labels.every((label) => LABEL.test(label))) return domain;
  throw usageError(
    `"${text}" is not a domain for a wildcard certificate`,
    'give one of two labels or more, such as sbx.localhost',
  );
}
