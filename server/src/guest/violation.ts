import { CayError } from '@cay/sdk/protocol';

/** A violation of the protocol by the guest. The connection is closed with this error. */
export function violation(what: string): CayError {
  return new CayError('unavailable', `The connection to the guest was ended: ${what}`, {
    details: { reason: 'protocol_violation' },
  });
}
