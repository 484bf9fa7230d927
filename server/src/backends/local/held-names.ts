/**
 * Names of resources that are being made or removed, which no record accounts for. A sweep that
 * sweeps while others work leaves these alone.
 */
export interface Hold {
  /** Holds one name more, until the release. */
  add(name: string): string;
  release(): void;
}

export class HeldNames {
  readonly #counts = new Map<string, number>();

  hold(...names: string[]): Hold {
    const held: string[] = [];
    const hold: Hold = {
      add: (name) => {
        held.push(name);
        this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
        return name;
      },
      release: () => {
        for (const name of held.splice(0)) {
          const left = this.#counts.get(name)! - 1;
          if (left > 0) this.#counts.set(name, left);
          else this.#counts.delete(name);
        }
      },
    };
    for (const name of names) hold.add(name);
    return hold;
  }

  has(name: string): boolean {
    return this.#counts.has(name);
  }
}
