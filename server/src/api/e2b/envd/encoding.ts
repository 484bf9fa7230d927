import { CayError } from '@cay/sdk/protocol';

/**
 * How the caller wants a body. One that takes anything gets it as it is, with its length, since packing costs
 * more than it saves on one machine; only one that asks for nothing but gzip gets that. Rejects
 * `invalid_argument` for what cannot be.
 */
export function acceptedEncoding(header: string | string[] | undefined): 'gzip' | undefined {
  const offers = String(header ?? '')
    .toLowerCase()
    .split(',')
    .map((offer) => offer.trim())
    .filter((offer) => offer !== '');
  const refused = (name: string) =>
    offers.some((offer) => new RegExp(`^${name}\\s*;\\s*q=0(\\.0*)?$`).test(offer));
  const wantsGzip = offers.some((offer) => /^gzip(\s*;|$)/.test(offer)) && !refused('gzip');
  if (wantsGzip && (offers.length === 1 || refused('identity'))) return 'gzip';
  if (refused('identity') || (refused('\\*') && !offers.some((offer) => offer.startsWith('identity')))) {
    throw new CayError('invalid_argument', 'no acceptable encoding found, supported: gzip', {
      details: { encoding: 'refused' },
    });
  }
  return undefined;
}

/** How a body that comes is packed. Rejects `invalid_argument` for what is not known. */
export function givenEncoding(header: string | undefined): 'gzip' | undefined {
  const name = (header ?? '').trim().toLowerCase();
  if (name === '' || name === 'identity') return undefined;
  if (name === 'gzip') return 'gzip';
  throw new CayError(
    'invalid_argument',
    `unsupported Content-Encoding: ${name.slice(0, 40)}, supported: gzip`,
  );
}
