/**
 * Writes events about what was denied. A program can try thousands of targets in a second, so denials are
 * gathered: each sandbox has one event in `EVERY_MS` at most, with the first targets and a count of all.
 */
import type { EgressAttempt, SandboxId } from '@cay/sdk/protocol';

export interface DenialEvents {
  add(attempt: EgressAttempt): void;
  close(): void;
}

interface Gathered {
  timer: NodeJS.Timeout | undefined;
  targets: Map<string, { target: string; reason: string | null; rule: string | null; count: number }>;
  /** All of them, those beyond the first targets included. */
  count: number;
}

const FIRST_MS = 1000;
const EVERY_MS = 30_000;
const MAX_TARGETS = 20;

export function openDenialEvents(
  write: (id: SandboxId, data: Record<string, unknown>) => void,
  { firstMs = FIRST_MS, everyMs = EVERY_MS }: { firstMs?: number; everyMs?: number } = {},
): DenialEvents {
  const gathered = new Map<SandboxId, Gathered>();

  function flush(id: SandboxId, one: Gathered): void {
    one.timer = undefined;
    if (one.count === 0) {
      gathered.delete(id);
      return;
    }
    const data = { count: one.count, targets: [...one.targets.values()] };
    one.count = 0;
    one.targets.clear();
    one.timer = setTimeout(() => flush(id, one), everyMs).unref();
    write(id, data);
  }

  return {
    add({ sandboxId: id, name, address, port, reason, suggestion }) {
      let one = gathered.get(id);
      if (!one) gathered.set(id, (one = { timer: undefined, targets: new Map(), count: 0 }));
      one.count++;
      const target = `${name ?? address}:${port}`;
      const known = one.targets.get(target);
      if (known) known.count++;
      else if (one.targets.size < MAX_TARGETS)
        one.targets.set(target, { target, reason, rule: suggestion, count: 1 });
      const current = one;
      one.timer ??= setTimeout(() => flush(id, current), firstMs).unref();
    },
    close() {
      for (const { timer } of gathered.values()) clearTimeout(timer);
      gathered.clear();
    },
  };
}
