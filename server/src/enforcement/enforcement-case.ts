/**
 * One thing that code in a sandbox tries, and what has to come of it.
 *
 * A case is tried from inside a real sandbox, by a program that the server puts there, and is judged outside:
 * by what the target saw. `blocked` and `works` are as they have to be, `open` is a wall that does not hold,
 * `broken` is something allowed that does not work, and `skipped` was not tried.
 *
 * *Who calls.* `run-report.ts` runs every case of `cases/` once for each report, in their order.
 *
 * *Concurrency.* One case at a time in one sandbox: a case may end processes, fill the disk and change the
 * policy (`network.during`), and leaves the sandbox usable for the next.
 *
 * *Errors.* A case that rejects is tried once more, and then recorded as `broken` with the message. A program
 * that was ended by what it tried is no error: the next question to the prober starts another.
 *
 * *Cost.* A report has some two hundred cases and should take seconds: a case waits no longer than about two.
 *
 *     const kmsg: EnforcementCase = {
 *       id: 'kernel.kmsg',
 *       title: 'reading the log of the kernel',
 *       async run({ probe }) {
 *         const said = await probe.attempt('read /dev/kmsg');    // words of guest/src/probe
 *         return said === 'read' ? open('it was read') : blocked(said);
 *       },
 *     };
 *
 * A case goes into the file of its subject, and that file's list is what `run-report.ts` reads.
 */
import type { EnforcementCase as CaseRecord, NetworkPolicy, SandboxId } from '@cay/sdk/protocol';
import type { Prober } from './prober.ts';
import type { Target } from './target.ts';

export interface Outcome {
  readonly state: CaseRecord['state'];
  readonly detail: string;
}

/** The network that stands for the internet while a report is made. */
export interface ReportNetwork {
  /** Another policy while the work lasts; `undefined` is none at all. */
  during(policy: NetworkPolicy | undefined, work: () => Promise<void>): Promise<void>;
  /** The names that were looked up outside so far. */
  resolved(): readonly string[];
  /** A sandbox of another project, which is in a network of the same name. */
  readonly neighbour: SandboxId;
}

export interface CaseWorld {
  readonly probe: Prober;
  readonly target: Target;
  /** What the sandbox may use, as its spec says. Null is no limit. */
  readonly limits: { memoryBytes: number | null; diskBytes: number | null; pids: number | null };
  /** Whose kernel answers inside: the host's, or one of the sandbox's own. */
  readonly kernel: 'shared' | 'own';
  /** Whether the server carries connections out. Without it cases that need a name are skipped. */
  readonly carries: boolean;
  /** Absent where it carries nothing. */
  readonly network: ReportNetwork | undefined;
  /** Stands for the secret `TOKEN`, which belongs to `vault.report.example` alone. */
  readonly placeholder: string;
  /** A directory inside that the user may write to. */
  readonly directory: string;
}

export interface EnforcementCase {
  /** In words of an id: `dns.tcp-elsewhere`. It does not change, so that reports can be compared. */
  readonly id: string;
  readonly title: string;
  run(world: CaseWorld): Promise<Outcome>;
}

export const blocked = (detail: string): Outcome => ({ state: 'blocked', detail });
export const open = (detail: string): Outcome => ({ state: 'open', detail });
export const works = (detail: string): Outcome => ({ state: 'works', detail });
export const broken = (detail: string): Outcome => ({ state: 'broken', detail });
export const skipped = (detail: string): Outcome => ({ state: 'skipped', detail });
