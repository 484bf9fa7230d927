import { SandboxSpecSchema, type SandboxSpec } from '@cay/sdk/protocol';
import type { SealedBox } from '../../lib/sealed-box.ts';

/** A spec as text whose environment, which may have secrets in it, is sealed where there is a key. */
export function sealedSpec(spec: SandboxSpec, box: SealedBox | undefined, context: string): string {
  const { env, ...rest } = spec;
  if (!box || Object.keys(env).length === 0) return JSON.stringify(spec);
  return JSON.stringify({ ...rest, sealedEnv: box.seal(JSON.stringify(env), context) });
}

/** Throws for a text whose environment this key does not open. With `withoutEnv` it is empty then. */
export function openedSpec(
  text: string,
  box: SealedBox | undefined,
  context: string,
  { withoutEnv = false } = {},
): SandboxSpec {
  const { sealedEnv, ...spec } = JSON.parse(text) as { sealedEnv?: string };
  const parsed = SandboxSpecSchema.parse(spec);
  if (sealedEnv === undefined || withoutEnv) return parsed;
  if (!box) throw new Error('there is no key');
  return { ...parsed, env: JSON.parse(box.open(sealedEnv, context).toString()) as SandboxSpec['env'] };
}
