/**
 * The answer to a program whose request is denied: text, JSON or HTML, as it accepts. Package managers and
 * git show the status line or the text to their user, so both say which rule is missing and how to add it.
 */
import type { EgressReason, SandboxId } from '@cay/sdk/protocol';
import type { Denial } from '../carrier/denial.ts';

export interface DenialPage {
  readonly status: number;
  readonly statusText: string;
  readonly type: string;
  readonly body: Buffer;
}

export interface DenialFacts {
  readonly sandbox: SandboxId;
  readonly denial: Denial;
  /** The narrowest rule that would allow it. */
  readonly suggestion: string;
  readonly accept: string | undefined;
}

/** What to do about it, in one sentence. */
export function remedyOf({ sandbox, denial, suggestion }: Omit<DenialFacts, 'accept'>): string | undefined {
  const add = `cay net allow ${sandbox} ${suggestion}`;
  const remedies: Partial<Record<EgressReason, string>> = {
    no_rule: `To allow it: ${add}`,
    no_policy: 'The sandbox has no network policy.',
    http_condition: `To allow it: ${add}`,
    deny_rule: `The rule "${denial.rule}" denies it. Whoever set it can remove it.`,
    bounded:
      'A policy above the one of this sandbox denies it, of its template, its project or the installation. Ask who runs the server.',
    not_approved: `It was not approved. To allow it: ${add}`,
    address: 'Private and local addresses need a rule of their own, such as 10.1.2.3:5432.',
  };
  return remedies[denial.reason];
}

export function denialPage(facts: DenialFacts): DenialPage {
  const { denial, suggestion, accept = '' } = facts;
  const status = statusOf(denial);
  const remedy = remedyOf(facts);
  const text = `${denial.message}.${remedy === undefined ? '' : `\n${remedy}`}\n`;
  // A status line has printable ASCII alone; the message quotes what a program sent.
  const statusText = `${denial.denied ? 'Refused' : 'Failed'} by Cay: ${text}`
    .replace(/\s+/g, ' ')
    .replace(/[^\x20-\x7e]/g, '?')
    .trim()
    .slice(0, 400);
  if (/\bjson\b/.test(accept)) {
    const error = remedy === undefined ? denial.message : `${denial.message}. ${remedy}`;
    const body = {
      error,
      message: error,
      code: 'CAY_NETWORK',
      reason: denial.reason,
      rule: denial.rule,
      suggestion,
    };
    return { status, statusText, type: 'application/json', body: Buffer.from(`${JSON.stringify(body)}\n`) };
  }
  if (accept.includes('text/html')) {
    const html = `<!doctype html><meta charset="utf-8"><title>${status}</title><h1>${denial.denied ? 'Refused' : 'Failed'}</h1><pre>${escapeHtml(text)}</pre>\n`;
    return { status, statusText, type: 'text/html; charset=utf-8', body: Buffer.from(html) };
  }
  return { status, statusText, type: 'text/plain; charset=utf-8', body: Buffer.from(`Cay: ${text}`) };
}

function statusOf({ reason, denied }: Denial): number {
  if (reason === 'limit') return 429;
  if (reason === 'ambiguous_request') return 400;
  return denied ? 403 : 502;
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
