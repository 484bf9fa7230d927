/** Wakes everyone who waits. Waiters check their own condition, before and after. */
export interface ChangeSignal {
  notify(): void;
  wait(): Promise<void>;
}

export function changeSignal(): ChangeSignal {
  let waiting: (() => void)[] = [];
  return {
    notify() {
      const woken = waiting;
      waiting = [];
      for (const wake of woken) wake();
    },
    wait() {
      return new Promise((resolve) => waiting.push(resolve));
    },
  };
}
