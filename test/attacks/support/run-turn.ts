import { seeded } from '../../faults/model/random.ts';
import type { Campaign } from './campaign.ts';
import { startTarget, type Target, type TargetOptions } from './target.ts';

/** A case that takes longer hangs. */
const CASE_MS = 60_000;
/** `/healthz` is asked after every so many cases. */
const CASES_PER_CHECK = 8;
/** Cases before memory is looked at for the first time: by then the server has loaded what it loads once. */
const WARM_UP_CASES = 50;
const MAX_FINDINGS = 5;
/** Of the server's log, told with a finding. */
const MAX_LOGGED_ERRORS = 3;
/** What the server may have grown by when the turn is over. */
const MAX_GROWTH_BYTES = 512 * 1024 ** 2;

export interface TurnOptions {
  seed: number;
  /** The turn ends by itself after this, or after `cases`. */
  ms: number;
  cases?: number | undefined;
  trace?: ((number: number, words: string) => void) | undefined;
  /** Ends the turn after the case that is under way. */
  signal?: AbortSignal | undefined;
}

export interface Finding {
  /**
   * The number of the case, from 1 on. The server is checked every few cases: one of the few before it may be
   * to blame.
   */
  number: number;
  words: string;
}

export interface Turn {
  cases: number;
  seconds: number;
  rssBefore: number;
  rssAfter: number;
  findings: Finding[];
}

/**
 * Runs cases of one campaign on a new server until the time is up or the server is gone. Rejects if the turn
 * cannot begin.
 */
export async function runTurn(
  campaign: Campaign,
  on: TargetOptions,
  { seed, ms, cases = Infinity, trace, signal }: TurnOptions,
): Promise<Turn> {
  await using target = await startTarget({ ...on, flags: [...((await campaign.flags?.(on)) ?? [])] });
  const open = await campaign.open(target, seeded(seed));
  const findings: Finding[] = [];
  const begun = performance.now();
  let rssBefore = target.rssBytes();
  let last = 'before the first case';
  let done = 0;
  let readTo = 0;

  const found = (error: unknown) => {
    const words = `${last}: ${error instanceof Error ? error.message : String(error)}`;
    findings.push({ number: done, words: `${words}${loggedErrors(target.log().slice(readTo))}` });
  };
  /** Whether the same process still answers, and has logged nothing that nobody expected. */
  const sound = async () => {
    const log = target.log();
    const unexpected = /^.*(unhandled|uncaught).*$/im.exec(log.slice(readTo))?.[0];
    readTo = log.length;
    if (unexpected !== undefined) found(new Error(`the server logged ${unexpected.slice(0, 500)}`));
    return target.requireAlive().then(
      () => true,
      (error: unknown) => (found(error), false),
    );
  };

  let lives = true;
  const goesOn = () =>
    lives &&
    done < cases &&
    performance.now() - begun < ms &&
    findings.length < MAX_FINDINGS &&
    signal?.aborted !== true;
  while (goesOn()) {
    done++;
    await inTime(open.next()).then((words) => (last = words), found);
    trace?.(done, last);
    if (done === WARM_UP_CASES) rssBefore = rssOf(target) ?? rssBefore;
    if (done % CASES_PER_CHECK === 0) lives = await sound();
  }
  lives &&= await sound();
  const seconds = (performance.now() - begun) / 1000;
  const rssAfter = rssOf(target) ?? rssBefore;
  if (rssAfter - rssBefore > MAX_GROWTH_BYTES)
    found(new Error(`the server grew by ${rssAfter - rssBefore} bytes`));
  if (lives) await inTime(Promise.resolve(open[Symbol.asyncDispose]?.())).catch(found);
  return { cases: done, seconds, rssBefore, rssAfter, findings };
}

/**
 * The errors among lines of the log: a turn that depends on the load of the machine cannot be played again.
 */
function loggedErrors(log: string): string {
  const errors = log.split('\n').filter((line) => /"level":[56]0/.test(line));
  return errors
    .slice(-MAX_LOGGED_ERRORS)
    .map((line) => `\n  the server logged ${line.slice(0, 2_000)}`)
    .join('');
}

/** `undefined` if the server has ended. */
function rssOf(target: Target): number | undefined {
  try {
    return target.rssBytes();
  } catch {
    return undefined;
  }
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`the case has not ended within ${CASE_MS} ms`)), CASE_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
