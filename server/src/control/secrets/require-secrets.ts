import { CayError, type NetworkPolicy } from '@cay/sdk/protocol';
import type { Tables } from '../../records/tables/tables.ts';
import { secretsIn } from './secrets-in.ts';

/** Rejects `failed_precondition` if a policy names a secret that the project does not have. */
export async function requireSecrets(
  on: Pick<Tables, 'storedSecrets'>,
  project: string,
  policy: NetworkPolicy | null,
): Promise<void> {
  for (const name of secretsIn(policy)) {
    if (await on.storedSecrets.get(project, name)) continue;
    throw new CayError(
      'failed_precondition',
      `A network rule uses the secret "${name}", and the project has no secret of that name`,
      { details: { secret: name }, hint: `store it first: cay secret set ${name}` },
    );
  }
}
