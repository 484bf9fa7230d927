/**
 * Parks an instance in which nothing runs but the guest, if its kernel uses the processor all the same.
 *
 * A gVisor of 2024 wakes every 400 µs for as long as it runs, which is 3 % of a core for each idle sandbox,
 * and no flag of it changes that. So an instance that nobody has called for a while, in which no process is
 * left and which still uses the processor, is frozen from outside. The next frame that is sent to its guest
 * continues it first, so nobody notices but the processor. A newer gVisor uses nothing while idle, and is
 * never parked.
 *
 * Nothing is recorded: a server that takes over an instance continues it.
 */
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { GuestClient, GuestStats } from '../../guest/guest-client.ts';
import type { Cgroup } from '../cgroups/cgroup.ts';

export interface Parking {
  /** What the guest last reported, while the instance is parked. */
  readonly parked: Pick<GuestStats, 'processes' | 'oomKills'> | undefined;
  /** The guest has connected. */
  watch(client: GuestClient): void;
  /** Continues the instance, which is not parked until `release`. */
  hold(): void;
  release(): void;
}

export interface ParkingOptions {
  /** How long nobody has called it. Default 3,000. */
  idleMs?: number;
  /** When it is looked at again if processes run in it. Default 30,000. */
  busyMs?: number;
}

/** A share of a core. What uses less is not worth the trouble. */
const WORTH = 0.005;
/** An answer to one question. A guest that takes longer is not idle. */
const ANSWER_MS = 5_000;

export function parking(cgroup: Cgroup, options: ParkingOptions = {}): Parking {
  const { idleMs = 3_000, busyMs = 30_000 } = options;
  let client: GuestClient | undefined;
  let parked: Parking['parked'];
  let held = false;
  /** Nothing is used while idle: there is nothing to gain. */
  let frugal = false;
  /** Changes with every frame to the guest. */
  let uses = 0;
  let timer: NodeJS.Timeout | undefined;

  function used(isAside = false): void {
    if (isAside && !parked) return;
    uses++;
    if (parked) proceed();
    if (!timer) lookIn(idleMs / 2);
  }

  function proceed(): void {
    parked = undefined;
    // The write that continues it is synchronous. If it fails the instance has ended.
    inBackground(cgroup.thaw(), ignoreFailure);
  }

  function lookIn(ms: number): void {
    if (held || frugal || !client || client.connection.error) return;
    timer = setTimeout(() => inBackground(look(), ignoreFailure), ms).unref();
  }

  /** Two looks, half of the idle time apart, see what it has used meanwhile. */
  async function look(): Promise<void> {
    let nextMs = idleMs / 2;
    try {
      const since = uses;
      const before = await cpuUsageMs();
      await new Promise<void>((resolve) => void setTimeout(resolve, idleMs / 2).unref());
      const share = ((await cpuUsageMs()) - before) / (idleMs / 2);
      const isIdle = () => since === uses && !held && client && !client.connection.error;
      if (!isIdle() || client!.connection.streams > 0) return;
      if (share < WORTH) {
        frugal = true;
        return;
      }
      const stats = await client!.stats({ aside: true, signal: AbortSignal.timeout(ANSWER_MS) });
      if (stats.processes > 0) nextMs = busyMs;
      else if (isIdle() && client!.connection.streams === 0) park(stats);
    } finally {
      timer = undefined;
      if (!parked) lookIn(nextMs);
    }
  }

  function park(stats: GuestStats): void {
    parked = stats;
    // If it was continued while it was being frozen, nobody waits for that any more.
    inBackground(cgroup.freeze(), () => parked === stats && proceed());
  }

  async function cpuUsageMs(): Promise<number> {
    return (await cgroup.read()).cpuUsageMs;
  }

  return {
    get parked() {
      return parked;
    },
    watch(next) {
      client = next;
      next.connection.beforeSend = used;
      used();
      // One whose connection is lost has to dial again.
      inBackground(
        next.closed.then(() => client === next && used()),
        ignoreFailure,
      );
    },
    hold() {
      held = true;
      if (parked) proceed();
    },
    release() {
      held = false;
      parked = undefined;
      used();
    },
  };
}
