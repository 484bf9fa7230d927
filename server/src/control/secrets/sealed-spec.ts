import type { SandboxSpec } from '@cay/sdk/protocol';
import { isSealed, type SealedBox } from '../../lib/sealed-box.ts';

/** A spec as it is recorded: its environment is sealed for that row, and all else can be asked for in SQL. */
export function storedSpec(spec: SandboxSpec, box: SealedBox, row: string): string {
  if (spec.env === undefined || Object.keys(spec.env).length === 0) return JSON.stringify(spec);
  return JSON.stringify({ ...spec, env: box.seal(JSON.stringify(spec.env), row) });
}

/** Most who read a row do not look at the environment: it is opened when somebody does. */
export function parsedSpec(text: string, box: SealedBox, row: string): SandboxSpec {
  const spec = JSON.parse(text) as Omit<SandboxSpec, 'env'> & { env: unknown };
  const { env } = spec;
  if (!isSealed(env)) return spec as SandboxSpec;
  let opened: SandboxSpec['env'] | undefined;
  Object.defineProperty(spec, 'env', {
    enumerable: true,
    configurable: true,
    get: () => (opened ??= JSON.parse(box.open(env, row).toString()) as SandboxSpec['env']),
  });
  return spec as SandboxSpec;
}
