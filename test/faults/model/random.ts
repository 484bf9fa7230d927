/** A source of chance that gives the same again for the same seed. */
export interface Random {
  below(limit: number): number;
  /** True in that share of the cases. */
  chance(share: number): boolean;
  pick<T>(from: readonly T[]): T;
}

export function seeded(seed: number): Random {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    below: (limit) => Math.floor(next() * limit),
    chance: (share) => next() < share,
    pick: (from) => from[Math.floor(next() * from.length)]!,
  };
}
