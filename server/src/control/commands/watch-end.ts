import type { Control } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import { noteEnd } from './command-events.ts';

const FIRST_MS = 1000;
const LONGEST_MS = 30_000;
/** So that callers who come and go cannot make the server watch without bound. */
const MOST = 1000;
let watched = 0;

/**
 * Notes the end of a command whose reader went away before it. The sandbox is asked now and then, and not
 * woken for it: what has ended is remembered there for a while.
 */
export function watchEnd(
  control: Control,
  principal: Principal,
  { id, project }: SandboxRow,
  command: string,
): void {
  if (watched >= MOST) return;
  watched++;
  let waitMs = FIRST_MS;
  const note = (end: Parameters<typeof noteEnd>[4]) =>
    noteEnd(control, principal.key, { id, project }, command, end);
  const look = async (): Promise<boolean> => {
    const { state } = control.get(principal, id);
    if (state !== 'active') {
      const over = state !== 'paused' && state !== 'creating';
      if (over) note({ kind: 'lost', reason: `The sandbox was ${state} before the command ended` });
      return over;
    }
    const guest = await control.backend.connect(id);
    const info = (await guest.commands()).find((candidate) => candidate.id === command);
    if (info && !info.end) return false;
    note(info?.end ?? { kind: 'lost', reason: 'The sandbox does not know the command any more' });
    return true;
  };
  const later = () => {
    setTimeout(() => {
      waitMs = Math.min(waitMs * 2, LONGEST_MS);
      look().then(
        (over) => (over ? watched-- : later()),
        (error: { code?: string }) => {
          // A sandbox that is gone has told its own end, and one that does not answer now may do so later.
          if (error.code === 'not_found' || error.code === undefined) watched--;
          else later();
        },
      );
    }, waitMs).unref();
  };
  later();
}
