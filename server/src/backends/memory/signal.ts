/** Wakes everyone who waits. What they wait for they look at themselves, before and after. */
export interface Bell {
  ring(): void;
  wait(): Promise<void>;
}

export function bell(): Bell {
  let waiting: (() => void)[] = [];
  return {
    ring() {
      const woken = waiting;
      waiting = [];
      for (const wake of woken) wake();
    },
    wait() {
      return new Promise((resolve) => waiting.push(resolve));
    },
  };
}
