/** What an answer of an S3 server means in our codes. What the server says is bounded and stripped. */
import { CayError, type ErrorCode } from '@cay/sdk/protocol';
import { reachHint, systemReason } from '@cay/sdk/system-error';
import type { BucketAddress } from './bucket-address.ts';
import { shownAddress } from './bucket-address.ts';

export interface Refused {
  status: number;
  /** The code of the S3 protocol, such as `NoSuchKey`. Empty if there is none. */
  code: string;
  message: string;
  /** The region that the server names. */
  region?: string | undefined;
}

const CODES: Record<string, ErrorCode> = {
  AccessDenied: 'permission_denied',
  AllAccessDisabled: 'permission_denied',
  AuthorizationHeaderMalformed: 'failed_precondition',
  BadDigest: 'unavailable',
  BucketRegionError: 'failed_precondition',
  ConditionalRequestConflict: 'conflict',
  EntityTooLarge: 'resource_exhausted',
  ExpiredToken: 'permission_denied',
  IllegalLocationConstraintException: 'failed_precondition',
  InvalidAccessKeyId: 'permission_denied',
  InvalidBucketName: 'invalid_argument',
  InvalidToken: 'permission_denied',
  KeyTooLongError: 'invalid_argument',
  NoSuchBucket: 'not_found',
  NoSuchKey: 'not_found',
  NotImplemented: 'unsupported',
  PermanentRedirect: 'failed_precondition',
  PreconditionFailed: 'conflict',
  QuotaExceeded: 'resource_exhausted',
  SignatureDoesNotMatch: 'permission_denied',
  TemporaryRedirect: 'failed_precondition',
  XAmzContentSHA256Mismatch: 'unavailable',
};
const STATUSES: Record<number, ErrorCode> = {
  301: 'failed_precondition',
  302: 'failed_precondition',
  307: 'failed_precondition',
  308: 'failed_precondition',
  400: 'failed_precondition',
  401: 'permission_denied',
  403: 'permission_denied',
  404: 'not_found',
  409: 'conflict',
  412: 'conflict',
  413: 'resource_exhausted',
  501: 'unsupported',
  507: 'resource_exhausted',
};

export function fromS3(what: string, address: BucketAddress, refused: Refused): CayError {
  const { status, code, message, region } = refused;
  const ours =
    CODES[code] ??
    STATUSES[status] ??
    (status >= 500 || status === 429 ? 'unavailable' : 'failed_precondition');
  const said = [code === '' ? String(status) : code, stripped(message)]
    .filter((one) => one !== '')
    .join(': ');
  return new CayError(ours, `Cannot ${what} ${shownAddress(address)}: the server answers ${said}`, {
    hint: hintOf(ours, code, region),
    details: { status, ...(code !== '' && { s3Code: code.slice(0, 60) }) },
  });
}

export function unreachable(what: string, address: BucketAddress, cause: unknown): CayError {
  return new CayError(
    'unavailable',
    `Cannot ${what} ${shownAddress(address)}: the server does not answer: ${systemReason(cause)}`,
    { cause, hint: reachHint(cause, 'the endpoint of the bucket') },
  );
}

function hintOf(ours: ErrorCode, code: string, region: string | undefined): string | undefined {
  if (ours === 'permission_denied')
    return code === 'AccessDenied'
      ? 'the credentials are known and may not do this: change the policy of the bucket or of the user'
      : 'look at the access key id, the secret key and the session token';
  if (ours === 'failed_precondition' && region !== undefined) return `the bucket is in the region ${region}`;
  if (code.endsWith('Redirect')) return 'give the endpoint and the region that the bucket is in';
  return undefined;
}

function stripped(text: string): string {
  // oxlint-disable-next-line no-control-regex -- they are what is taken out
  return text.replace(/[\0-\x1f\x7f-\x9f]+/g, ' ').slice(0, 200);
}
