/**
 * The certificate authority of this installation. Sandboxes trust it, and nobody else does. It signs a
 * certificate for each name whose TLS the server terminates.
 *
 * The key is ECDSA P-256. All certificates of names share one key that lives as long as the process: making a
 * certificate is one signature then.
 */
import {
  createPrivateKey,
  createPublicKey,
  createHash,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  X509Certificate,
} from 'node:crypto';
import { isIP } from 'node:net';
import { createSecureContext, type SecureContext } from 'node:tls';
import { addressBytes } from '../../lib/address-kind.ts';
import { bits, boolean, der, integer, octets, oid, sequence, set, tagged, time, utf8 } from './der.ts';

export interface Authority {
  /** The certificate in PEM, for the trust stores of sandboxes. */
  readonly certificate: string;
  /** What a server of this name shows. Made at the first call and kept for a while. */
  contextFor(name: string): SecureContext;
}

/** What is stored of an authority. The key is sealed by who stores it. */
export interface AuthorityMaterial {
  readonly certificate: string;
  /** PKCS #8 in PEM. */
  readonly key: string;
}

const DAY = 86_400_000;
const AUTHORITY_DAYS = 3650;
const NAME_DAYS = 30;
const KEPT = 2000;
const ECDSA_SHA256 = sequence(oid('1.2.840.10045.4.3.2'));

const commonName = (text: string) => sequence(set(sequence(oid('2.5.4.3'), utf8(text.slice(0, 64)))));
const extension = (id: string, value: Buffer, critical = false) =>
  sequence(oid(id), ...(critical ? [boolean(true)] : []), octets(value));

/** Makes a new authority. */
export function newAuthority(now: Date = new Date()): AuthorityMaterial {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const name = commonName(`Cay network authority ${randomBytes(4).toString('hex')}`);
  const id = keyId(publicKey);
  const certificate = certify({
    issuer: name,
    subject: name,
    publicKey,
    signer: privateKey,
    from: new Date(now.getTime() - DAY),
    until: new Date(now.getTime() + AUTHORITY_DAYS * DAY),
    extensions: [
      // It may sign certificates of servers, and no further authority.
      extension('2.5.29.19', sequence(boolean(true), integer(Buffer.from([0]))), true),
      extension('2.5.29.15', bits(Buffer.from([0b0000_0110]), 1), true),
      extension('2.5.29.14', octets(id)),
    ],
  });
  return { certificate, key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

export function openAuthority(
  { certificate, key }: AuthorityMaterial,
  now: () => number = Date.now,
): Authority {
  const own = new X509Certificate(certificate);
  const signer = createPrivateKey(key);
  if (!own.checkPrivateKey(signer))
    throw new Error('The key of the authority is not that of its certificate');
  const issuer = subjectOf(own);
  const authorityId = keyId(createPublicKey(signer));
  const leaf = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const leafKey = leaf.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const kept = new Map<string, { context: SecureContext; until: number }>();

  function make(name: string): SecureContext {
    const family = isIP(name);
    const alternative = family === 0 ? der(0x82, Buffer.from(name)) : der(0x87, addressBytes(name));
    const cert = certify({
      issuer,
      subject: commonName(name),
      publicKey: leaf.publicKey,
      signer,
      from: new Date(now() - DAY),
      until: new Date(now() + NAME_DAYS * DAY),
      extensions: [
        extension('2.5.29.19', sequence(), true),
        extension('2.5.29.15', bits(Buffer.from([0b1000_0000]), 7), true),
        extension('2.5.29.37', sequence(oid('1.3.6.1.5.5.7.3.1'))),
        extension('2.5.29.17', sequence(alternative)),
        extension('2.5.29.35', sequence(der(0x80, authorityId))),
      ],
    });
    return createSecureContext({ key: leafKey, cert: `${cert}${certificate}`, minVersion: 'TLSv1.2' });
  }

  return {
    certificate,
    contextFor(name) {
      const known = kept.get(name);
      if (known && known.until > now()) return known.context;
      const context = make(name);
      kept.delete(name);
      kept.set(name, { context, until: now() + (NAME_DAYS - 2) * DAY });
      if (kept.size > KEPT) kept.delete(kept.keys().next().value!);
      return context;
    },
  };
}

interface Certified {
  readonly issuer: Buffer;
  readonly subject: Buffer;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  readonly from: Date;
  readonly until: Date;
  readonly extensions: readonly Buffer[];
}

function certify({ issuer, subject, publicKey, signer, from, until, extensions }: Certified): string {
  const serial = randomBytes(16);
  serial[0]! &= 0x7f;
  serial[0]! |= 0x40;
  const content = sequence(
    tagged(0, integer(Buffer.from([2]))),
    integer(serial),
    ECDSA_SHA256,
    issuer,
    sequence(time(from), time(until)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    tagged(3, sequence(...extensions)),
  );
  const bytes = sequence(content, ECDSA_SHA256, bits(sign('sha256', content, signer)));
  const lines = bytes.toString('base64').match(/.{1,64}/g)!;
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

/** The subject of an authority that this file made: its one common name. */
function subjectOf(certificate: X509Certificate): Buffer {
  const name = /^CN=(.+)$/.exec(certificate.subject)?.[1];
  if (name === undefined) throw new Error('The certificate of the authority was not made by this program');
  return commonName(name);
}

function keyId(key: KeyObject): Buffer {
  return createHash('sha1')
    .update(key.export({ type: 'spki', format: 'der' }))
    .digest();
}
