import { CayError, type ErrorCode } from '@cay/sdk/protocol';

/** The failures of files, with the code and the message of each. */
const ERRNOS = {
  ENOENT: ['not_found', 'no such file or directory'],
  EACCES: ['permission_denied', 'permission denied'],
  EPERM: ['permission_denied', 'operation not permitted'],
  EROFS: ['permission_denied', 'read-only file system'],
  EEXIST: ['already_exists', 'file exists'],
  ENOTEMPTY: ['failed_precondition', 'directory not empty'],
  EXDEV: ['failed_precondition', 'invalid cross-device link'],
  EBUSY: ['failed_precondition', 'device or resource busy'],
  EINVAL: ['invalid_argument', 'invalid argument'],
  ENOTDIR: ['invalid_argument', 'not a directory'],
  EISDIR: ['invalid_argument', 'is a directory'],
  ELOOP: ['invalid_argument', 'too many levels of symbolic links'],
  ENAMETOOLONG: ['invalid_argument', 'file name too long'],
  ENOSPC: ['resource_exhausted', 'no space left on device'],
  EAGAIN: ['resource_exhausted', 'resource temporarily unavailable'],
} as const satisfies Record<string, [ErrorCode, string]>;

export type Errno = keyof typeof ERRNOS;

export function fileError(errno: Errno, path: string): CayError {
  const [code, words] = ERRNOS[errno];
  const shown = path.length > 256 ? `${path.slice(0, 256)}…` : path;
  return new CayError(code, `Cannot use ${JSON.stringify(shown)}: ${words}`, { details: { errno } });
}

/** The words alone, as a program prints them after its own name. */
export function wordsOf(error: unknown): string {
  const errno = error instanceof CayError ? error.details['errno'] : undefined;
  if (typeof errno === 'string' && Object.hasOwn(ERRNOS, errno)) return ERRNOS[errno as Errno][1];
  return error instanceof Error ? error.message : String(error);
}
