/**
 * E2B's metadata are labels. A key that a label cannot have is base64url below `e2b/metadata/`. Properties of
 * E2B sandboxes for which we have no field are labels below `e2b/`. Sandboxes of our own API have none of
 * them, so an absent label means the restrictive choice.
 */
import { CayError, LabelsSchema, type Sandbox } from '@cay/sdk/protocol';

/** Leaves room for the other labels. */
const MAX_ENTRIES = 60;
const OURS = 'e2b/';
const ENCODED = 'e2b/metadata/';
/** Every port is public. */
export const PUBLIC_TRAFFIC = 'e2b/public-traffic';
/** The Host header that applications get, with `${PORT}` for the port. */
export const MASK_HOST = 'e2b/mask-request-host';
/** `false`: only `connect` wakes the sandbox, and traffic does not. */
export const AUTO_RESUME = 'e2b/auto-resume';
/** The timeout in milliseconds that the client created the sandbox with. */
export const FIRST_TIMEOUT = 'e2b/timeout';
/** The template or snapshot that the client named. */
export const TEMPLATE = 'e2b/template';

/**
 * Throws `invalid_argument` if a caller of our own API sets or changes labels below `e2b/`: they decide who
 * reaches a sandbox, and the E2B routes validate their values. Unchanged labels may be sent again.
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
  // A key with a meaning for objects, such as `__proto__`, is left out and not refused.
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
 * Clients encode keys and values, then the pairs, and then the whole query, so a filter arrives encoded
 * twice. Clients that follow E2B's documentation encode once. Plain text stays as it is.
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
 * Whether traffic reaches a sandbox. It wakes a paused sandbox, unless the client that created it turned that
 * off.
 */
export function isReachable({ state, labels }: Pick<Sandbox, 'state' | 'labels'>): boolean {
  if (state === 'paused') return labels[AUTO_RESUME] !== 'false';
  return state === 'active' || state === 'creating';
}

/** Whether an E2B client created the sandbox. */
export function isE2bSandbox({ labels }: Pick<Sandbox, 'labels'>): boolean {
  return labels[AUTO_RESUME] !== undefined;
}
