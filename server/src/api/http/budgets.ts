/**
 * Bounds of what one project has under way at once, so that no project takes all of the server. The keys of a
 * project and the access tokens of its sandboxes count together.
 */
import { CayError } from '@cay/sdk/protocol';
import { rateLimit } from './rate-limit.ts';

export interface BudgetLimits {
  /** Calls that end with their answer. */
  calls: number;
  /** Calls that last: streams, commands that a client waits for, WebSockets. */
  streams: number;
  /**
   * Calls that need a process or a thread on the host: comparisons, exports, imports. Calls beyond the bound
   * wait.
   */
  helpers: number;
  /** Bytes of answers that are collected before they are sent. */
  bytes: number;
}

export type BudgetKind = 'call' | 'stream' | 'helper';

/** One call's share of its project's budgets. */
export interface Share {
  /** Takes more bytes until the call ends; false if none are left. */
  hold(bytes: number): boolean;
  /** Counts a body that is about to be parsed, which blocks the event loop. Throws `resource_exhausted`. */
  parse(bytes: number): void;
  /**
   * Resolves when the call may begin; absent if it may begin now. Rejects `cancelled` if the caller
   * disconnects first.
   */
  readonly turn?: Promise<void>;
  /** Keeps the share until this work has settled, also after the caller disconnected. */
  until(work: Promise<unknown>): void;
  /** Gives the share back when the caller has disconnected and the work has settled. */
  release(): void;
}

export interface Budgets {
  /** Throws `resource_exhausted`. */
  take(project: string, kind: BudgetKind): Share;
}

export const DEFAULT_BUDGETS: BudgetLimits = {
  calls: 256,
  streams: 1024,
  helpers: 4,
  bytes: 128 * 1024 * 1024,
};

/** Helpers of all projects together, not counting the first of each project. */
const ALL_HELPERS = 16;
/** Calls of a project that wait for a helper. */
const MOST_WAITING = 32;
const RETRY_AFTER_MS = 1000;
/**
 * How long work counts after its caller disconnected. No call waits longer, and a defect must not lock a
 * project out for ever.
 */
const ABANDONED_MS = 15 * 60_000;
/**
 * Bytes of JSON bodies that one project may have parsed, on average and at once. Contents of files are not
 * parsed.
 */
const PARSED = { perSecond: 16 * 1024 * 1024, burst: 32 * 1024 * 1024 };
const WORDS: Record<BudgetKind, string> = {
  call: 'calls under way',
  stream: 'streams and waiting calls open',
  helper: 'comparisons, exports and imports under way',
};

interface Usage {
  call: number;
  stream: number;
  /** Including calls that wait. */
  helper: number;
  running: number;
  bytes: number;
}

interface Waiting {
  project: string;
  go(): void;
  giveUp(): void;
}

export function openBudgets(limits: BudgetLimits): Budgets {
  const usages = new Map<string, Usage>();
  const most = { call: limits.calls, stream: limits.streams, helper: limits.helpers + MOST_WAITING };
  let running = 0;
  let waiting: Waiting[] = [];
  const parsed = rateLimit(PARSED);

  function usageOf(project: string): Usage {
    let usage = usages.get(project);
    if (!usage) usages.set(project, (usage = { call: 0, stream: 0, helper: 0, running: 0, bytes: 0 }));
    return usage;
  }

  /**
   * Whether one more may run. The first of each project always may: an export lasts as long as its reader
   * wants.
   */
  const mayRun = (usage: Usage) =>
    usage.running === 0 || (running < ALL_HELPERS && usage.running < limits.helpers);

  function run(usage: Usage): void {
    running++;
    usage.running++;
  }

  /** Starts waiting calls that may run, in order of arrival. */
  function next(): void {
    const one = waiting.find(({ project }) => mayRun(usageOf(project)));
    if (!one) return;
    waiting = waiting.filter((other) => other !== one);
    run(usageOf(one.project));
    one.go();
  }

  return {
    take(project, kind) {
      const usage = usageOf(project);
      if (usage[kind] >= most[kind])
        throw exhausted(project, WORDS[kind], `${kind}s`, usage[kind], most[kind]);
      usage[kind]++;
      let held = 0;
      let released = false;
      let runs = false;
      let mine: Waiting | undefined;
      let turn: Promise<void> | undefined;
      if (kind === 'helper' && mayRun(usage)) {
        run(usage);
        runs = true;
      } else if (kind === 'helper') {
        turn = new Promise((resolve, reject) => {
          mine = {
            project,
            go() {
              runs = true;
              resolve();
            },
            giveUp: () => reject(new CayError('cancelled', 'The caller disconnected')),
          };
          waiting.push(mine);
        });
        turn.catch(() => {});
      }
      let working = 0;
      let gone = false;
      let late: NodeJS.Timeout | undefined;
      const giveBack = () => {
        if (released) return;
        released = true;
        clearTimeout(late);
        usage[kind]--;
        usage.bytes -= held;
        if (runs) {
          running--;
          usage.running--;
          next();
        }
        if (usage.call + usage.stream + usage.helper === 0) usages.delete(project);
      };
      const settled = () => {
        working--;
        if (gone && working === 0) giveBack();
      };
      return {
        ...(turn && { turn }),
        hold(bytes) {
          if (released || usage.bytes + bytes > limits.bytes) return false;
          usage.bytes += bytes;
          held += bytes;
          return true;
        },
        parse(bytes) {
          const waitMs = parsed.take(project, bytes);
          if (waitMs > 0) throw tooMuchToParse(project, bytes, waitMs);
        },
        until(work) {
          working++;
          work.then(settled, settled);
        },
        release() {
          if (gone) return;
          gone = true;
          if (mine && !runs) {
            waiting = waiting.filter((other) => other !== mine);
            mine.giveUp();
          }
          if (working === 0) giveBack();
          else late = setTimeout(giveBack, ABANDONED_MS).unref();
        },
      };
    },
  };
}

/** The error for a call that would hold more bytes than its project may. */
export function bytesExhausted(what: string): CayError {
  return new CayError(
    'resource_exhausted',
    `${what}: the answers that this project waits for hold too many bytes already`,
    {
      details: { budget: 'bytes', retryAfterMs: RETRY_AFTER_MS },
      hint: 'wait for other calls to end, or ask for less',
    },
  );
}

function tooMuchToParse(project: string, bytes: number, waitMs: number): CayError {
  const { perSecond: limit } = PARSED;
  return new CayError(
    'resource_exhausted',
    `The project sends more than ${limit} bytes of JSON a second; this body has ${bytes}`,
    {
      details: { budget: 'parsedBytes', limit, project, retryAfterMs: Math.ceil(waitMs) },
      hint: 'wait as long as Retry-After says; send large content as a file',
    },
  );
}

function exhausted(project: string, what: string, budget: string, used: number, limit: number): CayError {
  return new CayError('resource_exhausted', `The project has ${used} ${what}, the most is ${limit}`, {
    details: { budget, used, limit, project, retryAfterMs: RETRY_AFTER_MS },
    hint: 'wait for some of them to end, or as long as Retry-After says',
  });
}
