/** Signed addresses for the upload of build files. The holder of one may use it until it expires. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { inEpoch } from '../../../../control/tenants/token-epochs.ts';

export interface Upload {
  project: string;
  template: string;
  hash: string;
}

const VALID_MS = 3600_000;

export interface UploadLinks {
  /** The path and query of the address. */
  make(upload: Upload): Promise<string>;
  /** Rejects `unauthenticated` for an address that this server did not sign, or that has expired. */
  require(
    upload: Omit<Upload, 'project'>,
    query: { project: string; expires: string; signature: string },
  ): Promise<Upload>;
}

/** `epochOf` gives how often the tokens of a project were revoked. */
export function uploadLinks(
  secret: Uint8Array,
  {
    now = Date.now,
    epochOf = async () => 0,
  }: { now?: () => number; epochOf?: (project: string) => Promise<number> } = {},
): UploadLinks {
  async function sign({ project, template, hash }: Upload, expires: string): Promise<string> {
    const text = JSON.stringify(['template-upload', project, template, hash, expires]);
    return createHmac('sha256', secret)
      .update(inEpoch(text, await epochOf(project)))
      .digest('base64url');
  }
  return {
    async make(upload) {
      const expires = String(now() + VALID_MS);
      const query = new URLSearchParams({
        project: upload.project,
        expires,
        signature: await sign(upload, expires),
      });
      return `/templates/${encodeURIComponent(upload.template)}/files/${upload.hash}?${query.toString()}`;
    },
    async require({ template, hash }, { project, expires, signature }) {
      const upload = { project, template, hash };
      // Compares the text, because several texts decode to the same bytes.
      const given = Buffer.from(signature);
      const expected = Buffer.from(await sign(upload, expires));
      if (given.length !== expected.length || !timingSafeEqual(given, expected))
        throw new CayError('unauthenticated', 'The signature of this address is not valid');
      if (!(Number(expires) > now())) throw new CayError('unauthenticated', 'This address has expired');
      return upload;
    },
  };
}
