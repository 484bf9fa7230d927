/**
 * Places at which a program can be made to fail on purpose, so that what it promises about crashes can be
 * tested.
 *
 * A place is a call of `faultPoint` with a name. Nothing happens there unless it is armed, by
 * `armFaultPoints` in the same process or by the environment variable `CAY_FAULT_POINTS`, which has the same
 * as JSON:
 *
 *     CAY_FAULT_POINTS='{"store.write.recorded":"kill@0.05","store.write.done":"delay:50"}'
 *
 * or `@` and the path of a file with that. The file is read each time, so it can be changed while the process
 * runs.
 *
 * | fault | what happens |
 * |---|---|
 * | `kill` | the process ends as by `kill -9` |
 * | `error` | the call rejects |
 * | `hang` | the call never settles: to the rest of the process it is as if the caller had been killed |
 * | `delay:50` | the call takes that many milliseconds |
 *
 * `@` and a probability may follow each. A name ending in `*` stands for all that begin so.
 */
import { readFileSync } from 'node:fs';

export type Fault = string | ((name: string) => void | Promise<void>);

const given = process.env['CAY_FAULT_POINTS'];
const file = given?.startsWith('@') ? given.slice(1) : undefined;
let armed: ReadonlyMap<string, Fault> | undefined = file === undefined ? fromJson(given) : undefined;

/** Arms exactly these; nothing disarms all. */
export function armFaultPoints(faults?: Record<string, Fault>): void {
  if (faults) for (const fault of Object.values(faults)) if (typeof fault === 'string') parse(fault);
  armed = faults && Object.keys(faults).length > 0 ? new Map(Object.entries(faults)) : undefined;
}

export function faultPoint(name: string): Promise<void> | undefined {
  const faults = file === undefined ? armed : fromJson(readFileSync(file, 'utf8'));
  return faults === undefined ? undefined : strike(name, faults);
}

async function strike(name: string, faults: ReadonlyMap<string, Fault>): Promise<void> {
  const fault =
    faults.get(name) ??
    [...faults].find(([key]) => key.endsWith('*') && name.startsWith(key.slice(0, -1)))?.[1];
  if (fault === undefined) return;
  if (typeof fault !== 'string') return fault(name);
  const { what, delayMs, probability } = parse(fault);
  if (Math.random() >= probability) return;
  if (what === 'error') throw new Error(`Fault on purpose at "${name}"`);
  if (what === 'kill') process.kill(process.pid, 'SIGKILL');
  // The signal may take a moment to arrive: nothing more is done meanwhile.
  await new Promise<void>((resolve) => {
    if (what === 'delay') setTimeout(resolve, delayMs);
  });
}

function parse(fault: string): { what: string; delayMs: number; probability: number } {
  const [, what, delay, probability] =
    /^(kill|error|hang|delay:(\d{1,7}))(?:@([01]|0?\.\d+))?$/.exec(fault) ?? [];
  if (what === undefined)
    throw new Error(
      `Not a fault: "${fault}"; use kill, error, hang or delay:<ms>, with @<probability> if need be`,
    );
  return {
    what: delay === undefined ? what : 'delay',
    delayMs: Number(delay ?? 0),
    probability: Number(probability ?? 1),
  };
}

function fromJson(text: string | undefined): ReadonlyMap<string, Fault> | undefined {
  if (text === undefined || text.trim() === '') return undefined;
  const faults = Object.entries(JSON.parse(text) as Record<string, unknown>).map(
    ([name, fault]): [string, Fault] => {
      parse(String(fault));
      return [name, String(fault)];
    },
  );
  return faults.length > 0 ? new Map(faults) : undefined;
}
