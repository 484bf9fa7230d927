/**
 * The record of attempts: the latest of each sandbox in memory, and each handed on when it has ended. What is
 * going on is in it too, with what it has carried so far.
 */
import { randomBytes } from 'node:crypto';
import type { EgressAttempt, EgressReason, EgressVerdict, SandboxId } from '@cay/sdk/protocol';
import type { Clock } from '../lib/clock.ts';
import { ownText } from '../lib/own-text.ts';

export type AttemptStart = Pick<EgressAttempt, 'name' | 'address' | 'port' | 'protocol' | 'process'> &
  Partial<Pick<EgressAttempt, 'method' | 'path'>>;

export interface OpenAttempt {
  readonly record: Readonly<EgressAttempt>;
  update(
    fields: Partial<Pick<EgressAttempt, 'address' | 'protocol' | 'status' | 'rule' | 'verdict' | 'reason'>>,
  ): void;
  /** Takes it back, because the requests of the connection are recorded in its place. */
  withdraw(): void;
  /** Ends it. Only the first call counts. */
  end(result: {
    verdict: EgressVerdict;
    reason?: EgressReason | undefined;
    rule?: string | undefined;
    suggestion?: string | undefined;
    bytes?: { out: number; in: number } | undefined;
  }): void;
}

export interface AttemptLog {
  begin(start: AttemptStart, bytes?: { out: number; in: number }): OpenAttempt;
  /** The latest first. */
  list(): EgressAttempt[];
  readonly counts: { attempts: number; denied: number };
}

/** Text of the sandbox is bounded before it is kept. */
const MAX_TEXT = 512;
const bounded = (text: string | null | undefined) => (text == null ? null : ownText(text, MAX_TEXT));

export function attemptLog(
  sandboxId: SandboxId,
  clock: Clock,
  { most, onAttempt }: { most: () => number; onAttempt: (attempt: EgressAttempt) => void },
): AttemptLog {
  const latest: { withdrawn: boolean; live: () => EgressAttempt }[] = [];
  const counts = { attempts: 0, denied: 0 };
  return {
    counts,
    begin(start, bytes = { out: 0, in: 0 }) {
      counts.attempts++;
      const began = clock.steady();
      const record: EgressAttempt = {
        id: `net_${randomBytes(9).toString('base64url')}`,
        sandboxId,
        at: new Date(clock.now()).toISOString(),
        name: start.name,
        address: start.address,
        port: start.port,
        protocol: start.protocol,
        method: bounded(start.method),
        path: bounded(start.path),
        status: null,
        process: bounded(start.process),
        verdict: 'allowed',
        reason: null,
        rule: null,
        suggestion: null,
        bytesOut: 0,
        bytesIn: 0,
        durationMs: 0,
        open: true,
      };
      const live = () => ({
        ...record,
        ...(record.open && { bytesOut: bytes.out, bytesIn: bytes.in, durationMs: clock.steady() - began }),
      });
      const entry = { withdrawn: false, live };
      latest.push(entry);
      const over = latest.length - most();
      if (over > 0) latest.splice(0, over);
      return {
        record,
        withdraw() {
          if (!record.open || entry.withdrawn) return;
          entry.withdrawn = true;
          counts.attempts--;
        },
        update: (fields) => void Object.assign(record, fields),
        end({ verdict, reason, rule, suggestion, bytes: final = bytes }) {
          if (!record.open || entry.withdrawn) return;
          if (verdict === 'denied') counts.denied++;
          Object.assign(record, {
            open: false,
            verdict,
            reason: reason ?? null,
            rule: rule ?? record.rule,
            suggestion: suggestion ?? null,
            bytesOut: final.out,
            bytesIn: final.in,
            durationMs: Math.round((clock.steady() - began) * 1000) / 1000,
          });
          onAttempt({ ...record });
        },
      };
    },
    list: () =>
      latest
        .filter(({ withdrawn }) => !withdrawn)
        .toReversed()
        .map(({ live }) => live()),
  };
}
