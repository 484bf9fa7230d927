/** What the operating system's error codes mean. A code alone never reaches a reader. */
const WORDS: Record<string, string> = {
  EACCES: 'permission denied',
  EADDRINUSE: 'the address is in use',
  EADDRNOTAVAIL: 'this machine does not have that address',
  EBUSY: 'it is in use',
  ECONNREFUSED: 'nothing listens there',
  ECONNRESET: 'the connection was closed by the other side',
  EDQUOT: 'the disk quota is used up',
  EEXIST: 'it exists already',
  EHOSTUNREACH: 'the host cannot be reached',
  EISDIR: 'it is a directory',
  ELOOP: 'too many symbolic links',
  EMFILE: 'too many open files',
  ENAMETOOLONG: 'the name is too long',
  ENETUNREACH: 'the network cannot be reached',
  ENOENT: 'no such file or directory',
  ENOSPC: 'no space is left on the disk',
  ENOTDIR: 'a part of the path is not a directory',
  ENOTEMPTY: 'the directory is not empty',
  ENOTFOUND: 'the name is unknown',
  EAI_AGAIN: 'the name cannot be looked up',
  EPERM: 'operation not permitted',
  EPIPE: 'the other side has closed the connection',
  EROFS: 'the filesystem is read-only',
  ETIMEDOUT: 'it did not answer in time',
  EXDEV: 'it is on another filesystem',
  UND_ERR_CONNECT_TIMEOUT: 'it did not answer in time',
  UND_ERR_SOCKET: 'the connection was closed by the other side',
};

export function errnoText(code: string): string {
  return WORDS[code] ?? `the system reports ${code}`;
}

/** The code of an error of the operating system, or of a cause of it. */
export function errnoOf(error: unknown): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth++) {
    const { code, errors } = at as NodeJS.ErrnoException & { errors?: unknown[] };
    // A name with several addresses fails with one error for each.
    const found = code ?? (Array.isArray(errors) ? (errors[0] as NodeJS.ErrnoException)?.code : undefined);
    // A CayError has a code of its own, in small letters.
    if (typeof found === 'string' && /^[A-Z]/.test(found)) return found;
  }
  return undefined;
}
