/** Parameters of listings: label filters, and cursors that continue after a row. */
import { CayError } from '@cay/sdk/protocol';

export function parseLabels(label: string | string[] | undefined): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const text of [label ?? []].flat()) {
    const at = text.indexOf('=');
    if (at < 1)
      throw new CayError('invalid_argument', `Label filter "${text.slice(0, 80)}" must be "key=value"`);
    labels[text.slice(0, at)] = text.slice(at + 1);
  }
  return labels;
}

export interface Cursor {
  createdAtMs: number;
  id: string;
}

export function formatCursor({ createdAtMs, id }: Cursor): string {
  return Buffer.from(`${createdAtMs}:${id}`).toString('base64url');
}

export function parseCursor(cursor: string): Cursor {
  const match = /^(\d{1,15}):((?:sbx|snap)_[a-z0-9]{20})$/.exec(Buffer.from(cursor, 'base64url').toString());
  if (!match)
    throw new CayError('invalid_argument', 'Invalid "cursor": use the "nextCursor" of an earlier page');
  return { createdAtMs: Number(match[1]), id: match[2]! };
}
