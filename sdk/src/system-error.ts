/**
 * What errors of the operating system, of TLS and of Node's HTTP mean, in words.
 *
 * A code such as `ENOTFOUND`, and a message such as `getaddrinfo ENOTFOUND host`, never reaches a reader:
 * whatever reports a failed connection or a failed file takes its words from here.
 */

/** The name is known, and there is no connection to it. */
const UNREACHED = new Set([
  'ECONNREFUSED',
  'EHOSTDOWN',
  'EHOSTUNREACH',
  'ENETDOWN',
  'ENETUNREACH',
  'ETIMEDOUT',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
]);
const UNTRUSTED = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);
/** Other verdicts of OpenSSL on a certificate. */
const NOT_VALID = new Set([
  'CERT_CHAIN_TOO_LONG',
  'CERT_REJECTED',
  'CERT_REVOKED',
  'CERT_SIGNATURE_FAILURE',
  'CERT_UNTRUSTED',
  'CRL_HAS_EXPIRED',
  'CRL_NOT_YET_VALID',
  'CRL_SIGNATURE_FAILURE',
  'ERROR_IN_CERT_NOT_AFTER_FIELD',
  'ERROR_IN_CERT_NOT_BEFORE_FIELD',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'PATH_LENGTH_EXCEEDED',
  'UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY',
  'UNABLE_TO_DECRYPT_CERT_SIGNATURE',
  'UNABLE_TO_GET_CRL',
]);
const NO_TLS = new Set(['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);

const WORDS: Record<string, string> = {
  ABORT_ERR: 'the call was ended before it answered',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  E2BIG: 'the arguments are too long',
  EACCES: 'permission denied',
  EADDRINUSE: 'the address is in use',
  EADDRNOTAVAIL: 'this machine does not have that address',
  EAGAIN: 'it is not ready, or a limit is reached',
  EBADF: 'the file is not open',
  EBUSY: 'it is in use',
  ECHILD: 'there is no such process',
  ECONNABORTED: 'the connection was given up',
  ECONNREFUSED: 'nothing listens there',
  ECONNRESET: 'the connection was closed by the other side',
  EDQUOT: 'the disk quota is used up',
  EEXIST: 'it exists already',
  EFBIG: 'the file is too large',
  EHOSTDOWN: 'the host cannot be reached',
  EHOSTUNREACH: 'the host cannot be reached',
  EINTR: 'it was interrupted',
  EINVAL: 'the system does not accept that value',
  EIO: 'the disk or the device reports an error',
  EISDIR: 'it is a directory',
  ELOOP: 'too many symbolic links',
  EMFILE: 'too many open files',
  EMLINK: 'too many links to the file',
  ENAMETOOLONG: 'the name is too long',
  ENETDOWN: 'the network is down',
  ENETUNREACH: 'the network cannot be reached',
  ENFILE: 'too many open files on this machine',
  ENETRESET: 'the connection was closed by the network',
  ENODEV: 'there is no such device',
  ENOENT: 'no such file or directory',
  ENOEXEC: 'it is not a program for this machine',
  ENOMEM: 'no memory is left',
  ENOSPC: 'no space is left on the disk',
  ENOSYS: 'this system cannot do that',
  ENOTCONN: 'there is no connection',
  ENOTDIR: 'a part of the path is not a directory',
  ENOTEMPTY: 'the directory is not empty',
  ENOTFOUND: 'the name is unknown',
  ENOTSOCK: 'it is not a socket',
  ENOTSUP: 'this system cannot do that',
  ENXIO: 'nothing listens there',
  EOPNOTSUPP: 'this system cannot do that',
  EPERM: 'operation not permitted',
  EPIPE: 'the other side has closed the connection',
  EROFS: 'the filesystem is read-only',
  ERR_SOCKET_CLOSED: 'the connection was closed',
  ERR_STREAM_PREMATURE_CLOSE: 'the connection was closed before the end',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
  ESRCH: 'there is no such process',
  ESTALE: 'the file is no longer there',
  ETIMEDOUT: 'it did not answer in time',
  ETXTBSY: 'the program is being written',
  EXDEV: 'it is on another filesystem',
  HOSTNAME_MISMATCH: 'its certificate is for another name',
  HPE_HEADER_OVERFLOW: 'its answer has too large a head',
  UND_ERR_BODY_TIMEOUT: 'it stopped sending',
  UND_ERR_CONNECT_TIMEOUT: 'it did not answer in time',
  UND_ERR_HEADERS_TIMEOUT: 'it did not answer in time',
  UND_ERR_SOCKET: 'the connection was closed by the other side',
};

const MOST_WORDS = 1000;

/** What a code means. */
export function errnoText(code: string): string {
  const words = WORDS[code];
  if (words !== undefined) return words;
  if (code.startsWith('EAI_')) return 'the name cannot be looked up';
  if (UNTRUSTED.has(code)) return 'its certificate is not trusted';
  if (NOT_VALID.has(code)) return 'its certificate is not valid';
  if (NO_TLS.has(code)) return 'it does not speak TLS';
  if (code.startsWith('HPE_')) return 'it does not speak HTTP';
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_')) return 'no TLS connection could be made';
  return `the system reports ${code}`;
}

/** The code of an error of the operating system, or of a cause of it. */
export function errnoOf(error: unknown): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth++) {
    const found = codeOf(at);
    if (found !== undefined) return found;
  }
  return undefined;
}

function codeOf(error: unknown): string | undefined {
  const { code, errors } = error as { code?: unknown; errors?: unknown };
  // A name with several addresses fails with one error for each.
  const found =
    code ?? (Array.isArray(errors) ? (errors[0] as { code?: unknown } | undefined)?.code : undefined);
  // A CayError has a code of its own, in small letters.
  return typeof found === 'string' && /^[A-Z]/.test(found) ? found : undefined;
}

/** Why something failed, in words: what its code means, otherwise its message. Bounded. */
export function systemReason(error: unknown): string {
  let at = error;
  // `fetch` fails with a TypeError that says nothing, and with the real failure as its cause.
  for (let depth = 0; depth < 8 && at instanceof TypeError && at.cause instanceof Error; depth++)
    at = at.cause;
  const code = at instanceof Error ? codeOf(at) : undefined;
  if (code !== undefined && !saysMoreInItsMessage(code)) return `${pathOf(at)}${errnoText(code)}`;
  return String((at as Error | undefined)?.message ?? at).slice(0, MOST_WORDS);
}

/** The file or socket that it is about. */
function pathOf(error: unknown): string {
  const { path } = error as { path?: unknown };
  return typeof path === 'string' ? `"${path.slice(0, 500)}": ` : '';
}

function saysMoreInItsMessage(code: string): boolean {
  return code.startsWith('ERR_') && WORDS[code] === undefined && !/^ERR_(?:SSL|TLS)_/.test(code);
}

/** Whether there was no connection at all: no such name, no such host, nothing that listens. */
export function isUnreached(error: unknown): boolean {
  const code = errnoOf(error);
  return code !== undefined && (UNREACHED.has(code) || isUnknownName(code));
}

/** Whether a certificate was signed by an authority that is not known here. */
export const isUntrusted = (error: unknown) => UNTRUSTED.has(errnoOf(error) ?? '');

const isUnknownName = (code: string) => code === 'ENOTFOUND' || code.startsWith('EAI_');

/**
 * What to do about a connection that could not be made. `address` completes "check …": `the URL`, `--url`.
 */
export function reachHint(error: unknown, address: string): string | undefined {
  const code = errnoOf(error);
  if (code === undefined) return undefined;
  if (isUnknownName(code)) return `check ${address}, and the name servers of this machine`;
  if (UNREACHED.has(code))
    return `check ${address}, that something listens there, and that a firewall lets it through`;
  if (UNTRUSTED.has(code)) return 'NODE_EXTRA_CA_CERTS=FILE names the authority that signed its certificate';
  if (NO_TLS.has(code)) return `it may want http:// in ${address}`;
  return undefined;
}
