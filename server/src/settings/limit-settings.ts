/** Limits in settings, held to what the API itself takes. */
import { SomeLimitsSchema, UpdateSandboxSchema, type PolicyFacts } from '@cay/sdk/protocol';
import { UnitError } from '../lib/units.ts';
import { LIMITS, amountsIn } from './amounts.ts';

type Limit = keyof PolicyFacts['maxima'];

/** A server that runs no command at all would be of no use. */
const FEWEST_COMMANDS = 1;

export function maximaIn(pairs: readonly string[]): Partial<PolicyFacts['maxima']> {
  const found = amountsIn(LIMITS, pairs);
  for (const limit of Object.keys(found) as Limit[]) {
    const problem = whyNot(limit, found[limit]!);
    if (problem === undefined) continue;
    const pair = pairs.findLast((each) => each.startsWith(`${LIMITS[limit][0]}=`));
    throw new UnitError(`"${pair}": ${problem}`);
  }
  // What the schemas take is no null where the policy has none.
  return found as Partial<PolicyFacts['maxima']>;
}

export function defaultsIn(pairs: readonly string[]): Partial<PolicyFacts['defaults']> {
  const { commands, ...defaults } = maximaIn(pairs);
  if (commands !== undefined) throw new UnitError('no sandbox asks for "commands": only a maximum has them');
  return defaults as Partial<PolicyFacts['defaults']>;
}

/** What is wrong with an amount, as the API would say it. */
function whyNot(limit: Limit, amount: number | null): string | undefined {
  if (limit === 'commands')
    return amount === null || amount < FEWEST_COMMANDS ? 'must be a number above 0' : undefined;
  const schema = limit === 'timeoutMs' ? UpdateSandboxSchema : SomeLimitsSchema;
  return schema.safeParse({ [limit]: amount }).error?.issues[0]?.message;
}
