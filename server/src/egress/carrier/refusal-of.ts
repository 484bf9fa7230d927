import type { Decision } from '../policy/decide.ts';
import type { ConnectionTarget } from './addresses.ts';
import { Denial } from './denial.ts';

/** Why a policy refuses a target. `over` names the protocol if it is not TCP. */
export function refusalOf(
  { name, address, port }: ConnectionTarget,
  { reason = 'no_rule', rule }: Decision,
  over = '',
): Denial {
  const what = `${name ?? address} on port ${port}${over}`;
  const why = rule === undefined ? 'the network policy does not allow it' : `the rule "${rule}" decides it`;
  return new Denial(reason, `This sandbox may not reach ${what}: ${why}`, rule);
}
