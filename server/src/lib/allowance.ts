/** So many at once, and so many more each second. */
export class Allowance {
  readonly #burst: number;
  readonly #perMs: number;
  #left: number;
  #at = performance.now();

  constructor({ burst, perSecond }: { burst: number; perSecond: number }) {
    this.#burst = this.#left = burst;
    this.#perMs = perSecond / 1_000;
  }

  take(): boolean {
    const now = performance.now();
    this.#left = Math.min(this.#burst, this.#left + (now - this.#at) * this.#perMs);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
