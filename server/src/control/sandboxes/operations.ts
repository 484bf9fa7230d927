/**
 * The order in which things happen to a sandbox: one after the other, those of different sandboxes side by
 * side.
 *
 * Waiting in line is right where the outcome is the same, whenever it happens. It is wrong where the caller
 * decided by what it saw: rolling back what another call has just rolled back, removing what somebody is
 * taking a snapshot of. Such operations are declared, and the later of two that do not go together is refused.
 */
import { CayError } from '@cay/sdk/protocol';
import { KeyedQueue } from '../../lib/keyed-queue.ts';

export const OPERATIONS = {
  snapshot: 'looks',
  turn: 'looks',
  compare: 'looks',
  fork: 'looks',
  rollback: 'changes',
  pause: 'changes',
  remove: 'changes',
} as const;
export type Operation = keyof typeof OPERATIONS;

export interface Operations {
  /** In line, and nothing else. */
  run<T>(id: string, task: () => Promise<T>): Promise<T>;
  /**
   * Declared from now until it is settled, and not in line: the task takes its place with `run` where it
   * must. Operations that only look go together, and so do two removals. Rejects `conflict` for any other pair.
   */
  declare<T>(id: string, operation: Operation, task: () => Promise<T>): Promise<T>;
}

export function openOperations(): Operations {
  const queue = new KeyedQueue<string>();
  const declared = new Map<string, Operation[]>();

  return {
    run: (id, task) => queue.run(id, task),

    async declare(id, operation, task) {
      const others = declared.get(id) ?? [];
      const other = others.find((candidate) => !goTogether(candidate, operation));
      if (other !== undefined) {
        throw new CayError(
          'conflict',
          `Cannot do the ${operation} of sandbox "${id}": a ${other} of it is under way`,
          {
            details: { operation, underWay: other },
            hint: 'look at the sandbox again and decide anew',
          },
        );
      }
      declared.set(id, [...others, operation]);
      try {
        return await task();
      } finally {
        const left = declared.get(id)!;
        left.splice(left.indexOf(operation), 1);
        if (left.length === 0) declared.delete(id);
      }
    },
  };
}

export function goTogether(one: Operation, other: Operation): boolean {
  return (
    (OPERATIONS[one] === 'looks' && OPERATIONS[other] === 'looks') || (one === 'remove' && other === 'remove')
  );
}
