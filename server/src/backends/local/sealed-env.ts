/**
 * The environment of a sandbox, which may have secrets in it, in a record on the disk: sealed, where there is
 * a key.
 */
import { CayError } from '@cay/sdk/protocol';
import { isSealed, type SealedBox } from '../../lib/sealed-box.ts';

interface Specified {
  id: string;
  spec: { env: Record<string, string> };
  /** Of a record that was read without the key: it stays as it was. */
  sealedEnv?: string | undefined;
}

export function withSealedEnv<R extends Specified>(record: R, box: SealedBox | undefined): R {
  const { id, spec } = record;
  if (box === undefined || Object.keys(spec.env).length === 0) return record;
  return {
    ...record,
    spec: { ...spec, env: {} },
    sealedEnv: box.seal(JSON.stringify(spec.env), contextOf(id)),
  };
}

/** Whether the environment in a record on the disk is in the clear. */
export function hasOpenEnv({ spec, sealedEnv }: Specified): boolean {
  return sealedEnv === undefined && Object.keys(spec.env).length > 0;
}

/**
 * Without the key the environment is empty, and what is sealed is kept: what is to be removed can be removed
 * without it.
 */
export function withOpenedEnv<R extends Specified>(record: R, box: SealedBox | undefined): R {
  const { sealedEnv, ...rest } = record;
  if (box === undefined || !isSealed(sealedEnv)) return record;
  try {
    const env = JSON.parse(box.open(sealedEnv, contextOf(record.id)).toString()) as Record<string, string>;
    return { ...rest, spec: { ...record.spec, env } } as R;
  } catch (error) {
    throw new CayError(
      'failed_precondition',
      `Cannot open the environment of "${record.id}": ${(error as Error).message}`,
      {
        hint: 'give the key that it was sealed with; CAY_SECRET_KEY and the file "secret.key" are where keys come from',
        cause: error,
      },
    );
  }
}

function contextOf(id: string): string {
  return `local/${id}`;
}
