/**
 * Keeps the machine from filling up. Measures free memory, disk and processes, refuses sandboxes, snapshots
 * and uploads that would not fit before any of them is made, and reports when room has to be made.
 *
 * Free resources are measured, because few sandboxes use all that their limits allow. Sandboxes that have
 * just started have not taken their memory yet, so each counts with an estimate until it shows in the
 * measurement. How much may be promised in all is a setting (`overcommit`); the promise is the sum of the
 * limits of all sandboxes in memory.
 */
import { CayError, type Limits } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import { freeBytes } from '../../lib/free-bytes.ts';
import type { Transaction } from '../../records/records.ts';
import type { Reservation } from '../tenants/reservations.ts';
import { isMeasured } from '../placement/placement.ts';
import { Gauge, worst, type Level } from './gauge.ts';

export interface PressureSettings {
  /** The shares in use at which room is made, and at which new sandboxes are refused. */
  warnShare: number;
  criticalShare: number;
  /** Memory and disk that new sandboxes never get. */
  memoryReserveBytes: number;
  diskReserveBytes: number;
  /** How many times the memory and disk of the machine may be promised; null means without bound. */
  memoryOvercommit: number | null;
  diskOvercommit: number | null;
  /** Whether idle sandboxes are frozen, and then hibernated, to make room. */
  reclaim: boolean;
  /** How often it measures. */
  lookEveryMs: number;
}

const MiB = 1024 * 1024;

export const PRESSURE_DEFAULTS: PressureSettings = {
  warnShare: 0.85,
  criticalShare: 0.95,
  memoryReserveBytes: 256 * MiB,
  diskReserveBytes: 256 * MiB,
  memoryOvercommit: null,
  diskOvercommit: null,
  reclaim: true,
  lookEveryMs: 2_000,
};

const SLACK = 0.03;
/** What a start takes before any command runs, and how long it may take to show in the measurement. */
const START_BYTES = 48 * MiB;
const START_PIDS = 64;
const SHOWS_AFTER_MS = 3_000;
const RETRY_AFTER_MS = 5_000;

export interface Reading {
  level: Level;
  /** The share in use. */
  share: number;
  total: number;
  free: number;
}

export type Resource = 'memory' | 'disk' | 'pids';

export interface Pressure {
  readonly thresholds: { warnShare: number; criticalShare: number };
  level(): Level;
  readings(): Partial<Record<Resource, Reading>>;
  /** The backend's warm pool at the last measurement; undefined if it has none. */
  pool(): { ready: number; wanted: number } | undefined;
  /** Measures now. */
  look(): Promise<Level>;
  /**
   * Admits one more sandbox, and counts it until it shows in the measurement. With `starts: false` it takes
   * disk only. A sandbox on a platform that is not measured is always admitted. With `asking` nothing is
   * counted. In the transaction that inserts the sandbox give `tx`: it is counted when that is committed.
   * `reserved` are the limits of this same start, which must not count twice.
   * Rejects `resource_exhausted` with what would fit and when to retry.
   */
  admit(limits: Pick<Limits, 'memoryBytes' | 'diskBytes'>, options?: AdmitOptions): Promise<void>;
  /**
   * Admits a write to the disk of sandboxes and server, and counts it until it shows in the measurement.
   * Throws `resource_exhausted` if less than the reserve would be left.
   */
  write(bytes: number): void;
  /** Calls the listener at every measurement of a resource that is not `ok`. */
  onPressure(listener: PressureListener): void;
  close(): void;
}

export interface AdmitOptions {
  starts?: boolean;
  platform?: string | undefined;
  asking?: boolean;
  tx?: Transaction;
  reserved?: Reservation;
}

export type PressureListener = (level: Level, resource: Resource) => void;

export interface PressureOptions {
  backend: Backend;
  /** Where the server writes records, uploads and logs, if that disk is to be measured too. */
  dataDir?: string | undefined;
  settings?: Partial<PressureSettings>;
  /** The sum of the memory limits of sandboxes in memory, and of the disk limits of all. */
  promised(
    tx: Transaction | undefined,
    reserved: Reservation | undefined,
  ): Promise<{ memoryBytes: number; diskBytes: number }>;
  /** Called when a level is entered or left. */
  onChange?(resource: Resource, reading: Reading, before: Level): void;
  now?(): number;
  onError(error: unknown): void;
}

export async function openPressure(options: PressureOptions): Promise<Pressure> {
  const { backend, promised, now = Date.now, onError } = options;
  const settings = { ...PRESSURE_DEFAULTS, ...options.settings };
  const thresholds = { warn: settings.warnShare, critical: settings.criticalShare, slack: SLACK };
  const gauges: Record<Resource, Gauge> = {
    memory: new Gauge(thresholds),
    disk: new Gauge(thresholds),
    pids: new Gauge(thresholds),
  };
  const listeners: PressureListener[] = [];
  let readings: Partial<Record<Resource, Reading>> = {};
  let warmPool: ReturnType<Pressure['pool']>;
  let starting: number[] = [];
  let own: number | undefined;
  /** Bytes that were admitted since the last measurement and the one before: they may not show yet. */
  let written = { now: 0, before: 0 };

  function note(resource: Resource, total: number, free: number): [Resource, Reading] {
    const share = total > 0 ? 1 - free / total : 0;
    const before = gauges[resource].level;
    const reading = { level: gauges[resource].read(share), share, total, free };
    if (reading.level !== before) options.onChange?.(resource, reading, before);
    return [resource, reading];
  }

  async function look(): Promise<Level> {
    if (options.dataDir !== undefined) own = await freeBytes(options.dataDir);
    written = { now: 0, before: written.now };
    const measuring = backend.ability('capacity');
    if (!measuring) return 'ok';
    const { memory, disk, pids, pool } = await measuring.capacity();
    warmPool = pool;
    readings = Object.fromEntries([
      ...(memory ? [note('memory', memory.totalBytes, memory.freeBytes)] : []),
      ...(disk ? [note('disk', disk.totalBytes, disk.freeBytes)] : []),
      ...(pids ? [note('pids', pids.total, pids.free)] : []),
    ]);
    for (const [resource, { level }] of Object.entries(readings)) {
      if (level === 'ok') continue;
      for (const listener of listeners) listener(level, resource as Resource);
    }
    return worst(Object.values(readings).map(({ level }) => level));
  }

  const underWay = () =>
    (starting = starting.filter((atMs) => now() - atMs < SHOWS_AFTER_MS && now() >= atMs)).length;

  function refuse(resource: Resource, why: string, fits: number): never {
    throw new CayError('resource_exhausted', `The machine has no room for this: ${why}`, {
      details: { resource, fits: Math.max(0, Math.floor(fits)), retryAfterMs: RETRY_AFTER_MS },
      hint: 'ask for less, remove or pause sandboxes that are not needed, or try again later',
    });
  }

  function requireFree(resource: 'memory' | 'disk', reserve: number, start: number): void {
    const reading = readings[resource];
    if (!reading) return;
    const spare = reading.free - reserve - underWay() * start;
    if (spare >= start && reading.level !== 'critical') return;
    refuse(
      resource,
      `${mebibytes(reading.free)} of ${resource} are free, ${mebibytes(reserve)} of which are kept back`,
      spare,
    );
  }

  /** A sandbox without a limit promises no amount: only the measurement bounds it. */
  async function requirePromise(
    resource: 'memory' | 'disk',
    more: number | null,
    overcommit: number | null,
    { tx, reserved }: AdmitOptions,
  ): Promise<void> {
    const reading = readings[resource];
    if (!reading || overcommit === null || more === null) return;
    const most = reading.total * overcommit;
    const sum = (await promised(tx, reserved))[resource === 'memory' ? 'memoryBytes' : 'diskBytes'];
    if (sum + more <= most) return;
    refuse(
      resource,
      `${mebibytes(sum)} of ${resource} are promised, and ${mebibytes(most)} may be at most`,
      most - sum,
    );
  }

  // If the first measurement fails, sandboxes are admitted until one succeeds.
  await look().catch(onError);
  const timer = setInterval(() => void look().catch(onError), settings.lookEveryMs).unref();

  return {
    thresholds: { warnShare: settings.warnShare, criticalShare: settings.criticalShare },
    level: () => worst(Object.values(readings).map(({ level }) => level)),
    readings: () => readings,
    pool: () => warmPool,
    look,
    async admit({ memoryBytes, diskBytes }, given = {}) {
      const { starts = true, platform, asking = false, tx } = given;
      if (!isMeasured(backend, platform)) return;
      await requirePromise('disk', diskBytes, settings.diskOvercommit, given);
      if (starts) await requirePromise('memory', memoryBytes, settings.memoryOvercommit, given);
      // From here on nothing is awaited: of two starts one counts before the other is admitted.
      requireFree('disk', settings.diskReserveBytes, MiB);
      if (!starts) return;
      requireFree('memory', settings.memoryReserveBytes, START_BYTES);
      const { pids } = readings;
      if (pids && (pids.level === 'critical' || pids.free - underWay() * START_PIDS < START_PIDS)) {
        refuse('pids', `${pids.free} processes of ${pids.total} are left`, pids.free);
      }
      if (asking) return;
      if (tx) tx.afterCommit(() => starting.push(now()));
      else starting.push(now());
    },
    write(bytes) {
      const free = Math.min(readings.disk?.free ?? Number.POSITIVE_INFINITY, own ?? Number.POSITIVE_INFINITY);
      const spare = free - settings.diskReserveBytes - written.now - written.before;
      if (bytes > 0 && bytes > spare) {
        refuse(
          'disk',
          `${mebibytes(free)} of disk are free, ${mebibytes(settings.diskReserveBytes)} of which are kept back`,
          spare,
        );
      }
      written.now += bytes;
    },
    onPressure: (listener) => void listeners.push(listener),
    close: () => clearInterval(timer),
  };
}

function mebibytes(bytes: number): string {
  return `${Math.max(0, Math.floor(bytes / MiB))} MiB`;
}
