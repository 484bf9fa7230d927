/** `E2B_DOMAIN` with the certificate that `cay cert` makes and the server that `cay up` starts. */
import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCay, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';

interface Made {
  certificate: string;
  key: string;
  authority: string;
  validUntilMs: number;
  existing: boolean;
}

describe('a certificate of our own', () => {
  let cay: Cay;
  beforeAll(async () => {
    cay = await openCay();
  });
  afterAll(() => cay[Symbol.asyncDispose]());

  it('is for every name below a domain, by an authority that can sign nothing else', async () => {
    const made = await cay.json<Made>('cert', '*.Sbx.localhost');
    const certificate = new X509Certificate(readFileSync(made.certificate));
    const authority = new X509Certificate(readFileSync(made.authority));
    expect(certificate.verify(authority.publicKey)).toBe(true);
    expect(certificate.ca).toBe(false);
    expect(certificate.checkHost('api.sbx.localhost')).toBe('*.sbx.localhost');
    expect(certificate.checkHost('sbx.localhost')).toBe('sbx.localhost');
    expect(certificate.checkHost('example.com')).toBeUndefined();
    expect(certificate.checkIP('127.0.0.1')).toBe('127.0.0.1');
    expect(statSync(made.key).mode & 0o777).toBe(0o600);
    // The authority's key is nowhere.
    expect(readdirSync(dirname(made.key)).toSorted()).toEqual(['ca.pem', 'cert.pem', 'key.pem']);
    expect(await cay.json<Made>('cert', 'sbx.localhost')).toEqual({ ...made, existing: true });
    const renewed = await cay.json<Made>('cert', 'sbx.localhost', '--renew');
    expect(renewed.existing).toBe(false);
    expect(readFileSync(renewed.certificate).equals(Buffer.from(certificate.toString()))).toBe(false);
  });

  it('is refused for what is no domain that clients accept', async () => {
    for (const domain of [
      'localhost',
      '',
      'a b.localhost',
      '../../etc',
      'x.y\nDNS:evil',
      `${'a'.repeat(64)}.localhost`,
    ]) {
      expect(await cay.run('cert', domain)).toMatchObject({
        code: 64,
        stderr: expect.stringContaining('not a domain') as string,
      });
    }
  });

  const why = whyNoLocal();
  if (why) console.warn(`E2B_DOMAIN with a real runtime is not tested: ${why}`);

  it.skipIf(why)('serves clients that know the domain alone', { timeout: 60_000 }, async () => {
    const { certificate, key, authority } = await cay.json<Made>('cert', 'sbx.localhost');
    const up = [
      'up',
      '--detach',
      '--runtime',
      'runc',
      '--tls-cert',
      certificate,
      '--tls-key',
      key,
      '--preview-domain',
      'sbx.localhost',
    ];
    const started = await cay.run(...up, { env: { NODE_EXTRA_CA_CERTS: authority } });
    expect(started).toMatchObject({ code: 0 });
    const { url, key: apiKey } = JSON.parse(readFileSync(join(cay.dataDir, 'cli.json'), 'utf8')) as {
      url: string;
      key: string;
    };
    const { port } = new URL(url);
    const client = (trust: Record<string, string>) =>
      promisify(execFile)(
        process.execPath,
        [
          '--import',
          join(import.meta.dirname, 'localhost-names.ts'),
          join(import.meta.dirname, 'wildcard-tls-client.ts'),
        ],
        {
          env: {
            PATH: process.env['PATH'],
            E2B_DOMAIN: `sbx.localhost:${port}`,
            E2B_API_KEY: apiKey,
            ...trust,
          },
        },
      );
    await expect(client({})).rejects.toThrow();
    const { stdout } = await client({ NODE_EXTRA_CA_CERTS: authority });
    const told = JSON.parse(stdout) as Record<string, unknown>;
    expect(told).toEqual({
      text: '42',
      id: expect.stringMatching(/^[a-z0-9]{20}$/) as string,
      host: `8000-${told['id'] as string}.sbx.localhost:${port}`,
      status: 200,
      same: true,
      killed: [true, true],
    });
  });
});
