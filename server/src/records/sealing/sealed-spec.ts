import type { SandboxSpec } from '@cay/sdk/protocol';
import { isSealed, type SealedBox } from '../../lib/sealed-box.ts';

type Env = Readonly<SandboxSpec['env']>;

/**
 * Specs as they are recorded: the environment is sealed for its row, and all else can be asked for in SQL.
 */
export interface SealedSpecs {
  stored(row: string, spec: SandboxSpec): string;
  /** Most readers of a row do not look at the environment, so it is decrypted on first access. */
  parsed(row: string, text: string): SandboxSpec;
}

/**
 * Environments that are kept open, since every command asks for that of its sandbox: so many, none of them
 * larger.
 */
const KEPT = 1000;
const KEPT_LENGTH = 16_384;

export function sealedSpecs(box: SealedBox): SealedSpecs {
  const kept = new Map<string, { sealed: string; env: Env }>();

  function opened(row: string, sealed: string): Env {
    const known = kept.get(row);
    if (known?.sealed === sealed) return known.env;
    const env = Object.freeze(JSON.parse(box.open(sealed, row).toString()) as SandboxSpec['env']);
    if (sealed.length <= KEPT_LENGTH) kept.set(row, { sealed, env });
    if (kept.size > KEPT) kept.delete(kept.keys().next().value!);
    return env;
  }

  return {
    stored(row, spec) {
      if (spec.env === undefined || Object.keys(spec.env).length === 0) return JSON.stringify(spec);
      return JSON.stringify({ ...spec, env: box.seal(JSON.stringify(spec.env), row) });
    },
    parsed(row, text) {
      const spec = JSON.parse(text) as Omit<SandboxSpec, 'env'> & { env: unknown };
      const { env } = spec;
      if (isSealed(env))
        Object.defineProperty(spec, 'env', {
          enumerable: true,
          configurable: true,
          get: () => opened(row, env),
        });
      return spec as SandboxSpec;
    },
  };
}
