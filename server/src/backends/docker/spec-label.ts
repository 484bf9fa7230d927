import { CayError, type SandboxSpec } from '@cay/sdk/protocol';
import type { SealedBox } from '../../lib/sealed-box.ts';
import { openedSpec, sealedSpec } from '../support/sealed-spec.ts';

/**
 * A spec as a label of a container or an image. Everybody who may use the engine can read labels, and the
 * environment in a spec may have secrets: it is sealed where there is a key.
 */
export function specLabel(id: string, spec: SandboxSpec, box: SealedBox | undefined): string {
  return sealedSpec(spec, box, contextOf(id));
}

/**
 * Rejects `failed_precondition` for a label that is missing, or whose environment this server's key does not
 * open. With `withoutEnv` the environment of such a label is empty.
 */
export function readSpecLabel(
  id: string,
  label: string | undefined,
  box: SealedBox | undefined,
  { withoutEnv = false } = {},
): SandboxSpec {
  if (!label)
    throw new CayError(
      'failed_precondition',
      `"${id}" was made by a version of Cay that kept no spec in Docker`,
      {
        hint: 'make it again; its files can be downloaded first',
      },
    );
  try {
    return openedSpec(label, box, contextOf(id), { withoutEnv });
  } catch (cause) {
    throw new CayError('failed_precondition', `Cannot read the spec of "${id}" in Docker`, {
      hint: 'give the key that it was sealed with; CAY_SECRET_KEY and the file "secret.key" are where keys come from',
      cause,
    });
  }
}

const contextOf = (id: string) => `docker/${id}`;
