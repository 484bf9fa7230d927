/** The limits of all sandboxes: those that are recorded, and those of starts that are not recorded yet. */
import type { Usage } from '../../records/tables/sandbox-row.ts';
import type { Tables } from '../../records/tables/tables.ts';
import { SUMMED, type Summed } from './quota.ts';

/** Limits that count while a start is under way; once it is done the records count them. */
export interface Reservation extends Disposable {
  readonly project: string;
  readonly limits: Summed;
}

export interface Reservations {
  /** What a project's sandboxes may take at most. With `before`: without this reservation and later ones. */
  usage(on: Tables, project: string, before?: Reservation): Promise<Usage>;
  /** Memory and disk of all projects together. `before` as with `usage`. */
  promised(on: Tables, before?: Reservation): Promise<Pick<Usage, 'memoryBytes' | 'diskBytes'>>;
  /** Counts from now on until the result is disposed of. */
  reserve(project: string, limits: Summed): Reservation;
}

export function openReservations(): Reservations {
  const reserved = new Set<Reservation>();
  /** How many were disposed of: they may be in the records or not, depending on when those were read. */
  let ended = 0;

  /** Reads sums that no reservation has moved into meanwhile. */
  async function stable<T>(read: () => Promise<T>): Promise<T> {
    for (;;) {
      const before = ended;
      const sums = await read();
      if (ended === before) return sums;
    }
  }

  return {
    async usage(on, project, before) {
      const usage = await stable(() => on.sandboxes.usage(project));
      for (const one of reserved) {
        // A set is ordered: of two that compete for the rest of a quota, the earlier gets it.
        if (one === before) break;
        if (one.project !== project) continue;
        for (const key of SUMMED) usage[key] += one.limits[key] ?? 0;
      }
      return usage;
    },
    async promised(on, before) {
      const { memoryBytes, diskBytes } = await stable(() => on.sandboxes.promised());
      const sum = { memoryBytes, diskBytes };
      for (const one of reserved) {
        if (one === before) break;
        sum.memoryBytes += one.limits.memoryBytes ?? 0;
        sum.diskBytes += one.limits.diskBytes ?? 0;
      }
      return sum;
    },
    reserve(project, limits) {
      const reservation: Reservation = {
        project,
        limits,
        [Symbol.dispose]() {
          if (reserved.delete(reservation)) ended++;
        },
      };
      reserved.add(reservation);
      return reservation;
    },
  };
}
