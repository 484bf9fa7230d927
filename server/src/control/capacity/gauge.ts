/** How close a resource is to running out. */
export type Level = 'ok' | 'warn' | 'critical';

export interface Thresholds {
  /** Shares in use, between 0 and 1. */
  warn: number;
  critical: number;
  /** How far usage must fall below a threshold before its level is left. */
  slack: number;
}

/**
 * The level of one resource over time. A level is entered at its threshold and left some way below it, so
 * usage around a threshold does not make the level flap.
 */
export class Gauge {
  readonly #thresholds: Thresholds;
  #level: Level = 'ok';
  #share = 0;

  constructor(thresholds: Thresholds) {
    this.#thresholds = thresholds;
  }

  get level(): Level {
    return this.#level;
  }

  /** The share in use at the last reading. */
  get share(): number {
    return this.#share;
  }

  read(share: number): Level {
    const { warn, critical, slack } = this.#thresholds;
    const holds = (threshold: number, entered: boolean) => share >= (entered ? threshold - slack : threshold);
    this.#share = share;
    if (holds(critical, this.#level === 'critical')) this.#level = 'critical';
    else if (holds(warn, this.#level !== 'ok')) this.#level = 'warn';
    else this.#level = 'ok';
    return this.#level;
  }
}

const ORDER: readonly Level[] = ['ok', 'warn', 'critical'];

export function worst(levels: Iterable<Level>): Level {
  let found = 0;
  for (const level of levels) found = Math.max(found, ORDER.indexOf(level));
  return ORDER[found]!;
}
