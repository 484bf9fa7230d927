import { execFileSync } from 'node:child_process';

/** Writes a certificate that signs itself, valid for a day, and its key. */
export function ownCertificate(
  { keyFile, certFile }: { keyFile: string; certFile: string },
  [name, ...names]: readonly [string, ...string[]],
): void {
  const subject = ['-subj', `/CN=${name}`];
  const alternatives = [name, ...names].map((one) => `DNS:${one}`).join(',');
  execFileSync(
    'openssl',
    [
      ...[
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '1',
      ],
      ...[...subject, '-addext', `subjectAltName=${alternatives},IP:127.0.0.1`],
      ...['-keyout', keyFile, '-out', certFile],
    ],
    { stdio: 'ignore' },
  );
}
