import { CayError } from '@cay/sdk/protocol';
import { canRoute, type Backend } from '../../backends/backend.ts';

/**
 * The platform for what is to be made; undefined where there is only one. Throws `not_found` for a name that
 * is none.
 */
export function choosePlatform(
  backend: Backend,
  wish: { platform?: string; labels: Readonly<Record<string, string>> },
): string | undefined {
  if (canRoute(backend)) return backend.choose(wish);
  if (wish.platform === undefined || wish.platform === backend.name) return undefined;
  throw new CayError('not_found', `Platform "${wish.platform}" is unknown`, {
    details: { what: 'platform' },
    hint: `This server has "${backend.name}" alone`,
  });
}
