/**
 * E2B's metadata are our labels. A key that a label cannot have is written in base64url below
 * `e2b/metadata/`; what E2B can say about a sandbox and we have no field for stands below `e2b/` too. A
 * sandbox of our own API has none of these, so each of them means the careful choice when it is absent.
 */
import { CayError, LabelsSchema, type Sandbox } from '@cay/sdk/protocol';

/** Leaves room for our own labels beside them. */
const MAX_ENTRIES = 60;
const OURS = 'e2b/';
const ENCODED = 'e2b/metadata/';
/** Anybody who knows the host's name reaches every port. */
export const PUBLIC_TRAFFIC = 'e2b/public-traffic';
/** What an application is told that its host is, with `${PORT}` in place of the port. */
export const MASK_HOST = 'e2b/mask-request-host';
/** `false`: only a client that connects wakes it. */
export const AUTO_RESUME = 'e2b/auto-resume';
/**
 * The template or snapshot that its maker named, which in a sandbox of ours is what that in turn was made
 * from.
 */
export const TEMPLATE = 'e2b/template';

/**
 * Rejects `invalid_argument` for labels below `e2b/` that a caller of our own API would set or change: they
 * decide who reaches a sandbox, and their values are checked by the routes that give them. What is there
 * already may be sent again.
 */
export function requireOwnLabels(
  labels: Record<string, string> | undefined,
  current: Record<string, string> = {},
): void {
  const taken = Object.keys(labels ?? {}).find(
    (key) => key.startsWith(OURS) && current[key] !== labels![key],
  );
  if (taken === undefined) return;
  throw new CayError(
    'invalid_argument',
    `The label "${taken}" cannot be set: labels below "${OURS}" are kept for E2B's clients`,
    {
      hint: 'choose another prefix',
    },
  );
}

export function toLabels(metadata: Record<string, string>): Record<string, string> {
  const labels = Object.fromEntries(Object.entries(metadata).map(([key, value]) => [labelOf(key), value]));
  const parsed = LabelsSchema.safeParse(labels);
  if (parsed.success && Object.keys(labels).length <= MAX_ENTRIES) return parsed.data;
  throw new CayError(
    'invalid_argument',
    `Metadata has at most ${MAX_ENTRIES} entries, with keys of up to 80 characters and values of up to 1024`,
  );
}

export function labelOf(key: string): string {
  const label = LabelsSchema.safeParse({ [key]: '' });
  // A key that objects have a meaning of their own for is left out rather than refused.
  const plain = !key.startsWith(OURS) && label.success && Object.hasOwn(label.data, key);
  return plain ? key : ENCODED + Buffer.from(key).toString('base64url');
}

export function toMetadata(labels: Record<string, string>): Record<string, string> {
  const metadata: [string, string][] = [];
  for (const [key, value] of Object.entries(labels)) {
    if (key.startsWith(ENCODED))
      metadata.push([Buffer.from(key.slice(ENCODED.length), 'base64url').toString(), value]);
    else if (!key.startsWith(OURS)) metadata.push([key, value]);
  }
  return Object.fromEntries(metadata);
}

/**
 * The clients encode keys and values, then the pairs, and then the whole as a query: it arrives here encoded
 * twice yet, except from those who follow E2B's documents and encode once. Text that is not encoded stays as
 * it is.
 */
export function parseMetadataFilter(text: string): Record<string, string> {
  const metadata: [string, string][] = [];
  for (const pair of text.split('&')) {
    if (pair === '') continue;
    const at = pair.indexOf('=');
    if (at < 1)
      throw new CayError('invalid_argument', `Metadata filter "${pair.slice(0, 80)}" must be "key=value"`);
    metadata.push([decodeTwice(pair.slice(0, at)), decodeTwice(pair.slice(at + 1))]);
  }
  return Object.fromEntries(metadata);
}

function decodeTwice(text: string): string {
  return decode(decode(text));
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new CayError('invalid_argument', 'The metadata filter is not well encoded');
  }
}

/**
 * Whether traffic reaches a sandbox. One that is paused wakes for it, unless a maker who speaks E2B did not
 * wish that.
 */
export function isReachable({ state, labels }: Pick<Sandbox, 'state' | 'labels'>): boolean {
  if (state === 'paused') return labels[AUTO_RESUME] !== 'false';
  return state === 'active' || state === 'creating';
}

/** Whether one of E2B's clients made it. */
export function isMadeHere({ labels }: Pick<Sandbox, 'labels'>): boolean {
  return labels[AUTO_RESUME] !== undefined;
}
