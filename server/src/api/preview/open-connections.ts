import { CayError } from '@cay/sdk/protocol';

/**
 * Counts the open connections of visitors to each sandbox, through previews and through ports of E2B
 * sandboxes together.
 */
export interface OpenConnections {
  /** Throws `resource_exhausted` beyond the bound. Dispose of the result when the connection closes. */
  enter(sandbox: string): Disposable;
}

export function openConnections(most: number): OpenConnections {
  const open = new Map<string, number>();
  return {
    enter(sandbox) {
      const before = open.get(sandbox) ?? 0;
      if (before >= most) {
        throw new CayError(
          'resource_exhausted',
          `The sandbox has ${most} open connections of visitors already, the most it may have`,
          {
            details: { limit: most, retryAfterMs: 1000 },
            hint: 'close some; the operator sets the bound with --preview-connections',
          },
        );
      }
      open.set(sandbox, before + 1);
      let entered = true;
      return {
        [Symbol.dispose]() {
          if (!entered) return;
          entered = false;
          const left = open.get(sandbox)! - 1;
          if (left === 0) open.delete(sandbox);
          else open.set(sandbox, left);
        },
      };
    },
  };
}
