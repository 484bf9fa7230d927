import { CayError, type ErrorCode } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { saidIn, timeoutIn } from '../../lib/http-failure.ts';

const CODES: Record<number, ErrorCode> = {
  400: 'invalid_argument',
  401: 'permission_denied',
  403: 'permission_denied',
  404: 'not_found',
  409: 'conflict',
  501: 'unsupported',
  503: 'unavailable',
};

/** Failures that the engine reports in words, under a status that is less precise. */
const WORDED_FAILURES: [RegExp, ErrorCode][] = [
  [
    /no space left on device|disk quota exceeded|cannot allocate memory|too many open files/i,
    'resource_exhausted',
  ],
  [
    /is not running|is paused|is not paused|already paused|marked for removal|is restarting/i,
    'failed_precondition',
  ],
  [/device or resource busy.*memory|memory.*device or resource busy/i, 'failed_precondition'],
  [/manifest unknown|repository does not exist|no such image|pull access denied/i, 'not_found'],
];

/** An answer of the engine that is not a success. `action` completes "Cannot …". */
export function fromDockerAnswer(status: number, body: string, action: string): CayError {
  const said = saidIn(body);
  const code = WORDED_FAILURES.find(([pattern]) => pattern.test(said))?.[1] ?? CODES[status] ?? 'internal';
  return new CayError(code, `Cannot ${action}: Docker says "${said}"`, { details: { status } });
}

/** A failure to reach the engine, or the end of the connection to it. */
export function fromDocker(error: unknown, action: string, where: string): CayError {
  if (error instanceof CayError) return error;
  // A request that was aborted says so, and only its cause says whether by the caller or by a timeout.
  const { name, code } = timeoutIn(error) ?? (error as NodeJS.ErrnoException);
  if (name === 'AbortError')
    return new CayError('cancelled', `Cannot ${action}: the caller gave up`, { cause: error });
  if (name === 'TimeoutError')
    return new CayError('deadline_exceeded', `Cannot ${action}: Docker at "${where}" took too long`, {
      cause: error,
    });
  if (code === 'EACCES' || code === 'EPERM') {
    return new CayError(
      'unavailable',
      `Cannot ${action}: Docker at "${where}" may not be used by this user`,
      {
        cause: error,
        hint: 'add this user to the group "docker", or run as root',
      },
    );
  }
  if (code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'EHOSTUNREACH' || code === 'ENOTFOUND') {
    return new CayError('unavailable', `Cannot ${action}: no Docker engine answers at "${where}"`, {
      cause: error,
      hint: 'start the Docker engine (systemctl start docker), or set DOCKER_HOST to where it listens',
    });
  }
  return new CayError(
    'unavailable',
    `Cannot ${action}: the connection to Docker at "${where}" broke: ${systemReason(error)}`,
    { cause: error },
  );
}
