import { CayError } from '@cay/sdk/protocol';

/** What a guest did that the protocol forbids. Whoever finds it ends the connection with this. */
export function violation(what: string): CayError {
  return new CayError('unavailable', `The connection to the guest was ended: ${what}`, {
    details: { reason: 'protocol_violation' },
  });
}
