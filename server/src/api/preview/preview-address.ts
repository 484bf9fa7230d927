import type { IncomingMessage } from 'node:http';
import type { SandboxId } from '@cay/sdk/protocol';

/** The port of a sandbox that a request is for, and the path that the application sees. */
export interface PreviewAddress {
  /**
   * Undefined if the address has the form of a preview's but is not valid. Such a request must not reach
   * anything else.
   */
  target: { id: SandboxId; port: number } | undefined;
  /** Path and query, as the application sees them. */
  path: string;
  /** The part of the path before the application's; empty for a preview with a host of its own. */
  prefix: string;
}

export interface PreviewAddresses {
  /** Undefined if the request is not for a preview. */
  of(request: Pick<IncomingMessage, 'headers' | 'url'>): PreviewAddress | undefined;
}

/** E2B's old addresses have the id of a client behind the sandbox's, which means nothing. */
const LABEL = /^(\d{1,5})-([a-z0-9]{20})(?:-[a-z0-9]{1,40})?$/;
const BY_PATH = /^\/preview\/(sbx_[a-z0-9]{20})\/(\d{1,5})(?=[/?]|$)/;

/**
 * Addresses are `{port}-{id without "sbx_"}.{domain}`, or `/preview/{id}/{port}/` without a wildcard domain.
 */
export function previewAddresses(domains: readonly string[]): PreviewAddresses {
  const suffixes = [...new Set([...domains, 'localhost'])].map((domain) => `.${domain.toLowerCase()}`);
  return {
    of({ headers, url = '/' }) {
      const host = (headers.host ?? '').toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
      const suffix = suffixes.find((candidate) => host.endsWith(candidate));
      const label = suffix === undefined ? '' : host.slice(0, -suffix.length);
      // A name that begins like a preview is treated as one, even if it is malformed.
      if (/^\d+-/.test(label)) {
        const match = LABEL.exec(label);
        return {
          target: target(match?.[2] && `sbx_${match[2]}`, match?.[1]),
          path: url.startsWith('/') ? url : '/',
          prefix: '',
        };
      }
      if (!/^\/preview(?:[/?]|$)/.test(url)) return undefined;
      const match = BY_PATH.exec(url);
      const prefix = match?.[0] ?? '';
      return { target: target(match?.[1], match?.[2]), path: url.slice(prefix.length), prefix };
    },
  };
}

function target(id: string | undefined, port: string | undefined): PreviewAddress['target'] {
  const number = Number(port);
  return id === undefined || !(number >= 1 && number <= 65_535)
    ? undefined
    : { id: id as SandboxId, port: number };
}

export function previewHost(id: SandboxId, port: number, domain: string): string {
  return `${port}-${id.slice('sbx_'.length)}.${domain}`;
}
