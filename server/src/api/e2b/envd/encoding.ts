import { CayError } from '@cay/sdk/protocol';

/**
 * The encoding of the answer. A client that accepts anything gets plain bytes with a length, because
 * compression costs more than it saves on one machine. Only a client that accepts nothing but gzip gets gzip.
 * Throws `invalid_argument` if no encoding fits.
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

/** The encoding of a request body. Throws `invalid_argument` for an unknown one. */
export function givenEncoding(header: string | undefined): 'gzip' | undefined {
  const name = (header ?? '').trim().toLowerCase();
  if (name === '' || name === 'identity') return undefined;
  if (name === 'gzip') return 'gzip';
  throw new CayError(
    'invalid_argument',
    `unsupported Content-Encoding: ${name.slice(0, 40)}, supported: gzip`,
  );
}
