import { admitAddress, type Decision, type Layers } from '../policy/decide.ts';
import type { SandboxEgress } from '../sandbox-egress.ts';
import { Denial } from './denial.ts';
import type { Engine } from './engine.ts';

export interface ConnectionTarget {
  /** In normal form. */
  readonly name: string | undefined;
  /** In canonical form, if there is no name. */
  readonly address: string | undefined;
  readonly port: number;
  readonly process: string | undefined;
}

/** The addresses that a target is at. A name is counted before it leaves in a query. */
export async function resolveTarget(
  engine: Engine,
  sandbox: SandboxEgress,
  { name, address }: ConnectionTarget,
  rules: Decision['rules'],
): Promise<readonly string[]> {
  if (name === undefined) return [address!];
  // A name that is looked up is sent to whoever has the zone.
  const secret = engine
    .secrets(sandbox.id)
    .find(({ placeholder }) => name.includes(placeholder.toLowerCase()));
  if (secret)
    throw new Denial('placeholder', `The name has the placeholder of the secret "${secret.name}" in it`);
  sandbox.spendName(name, rules);
  if (engine.proxy?.resolve === 'proxy') return [name];
  try {
    return await engine.resolver.resolve(name, sandbox.project);
  } catch {
    throw new Denial('resolve', `The name ${name} cannot be resolved`);
  }
}

/** Those of them that the policy lets the name be at. Throws a `Denial` if there are none. */
export function admittedAddresses(
  engine: Engine,
  policy: Layers,
  { name, port }: ConnectionTarget,
  addresses: readonly string[],
): readonly string[] {
  if (name === undefined || engine.proxy?.resolve === 'proxy') return addresses;
  let refused: Decision | undefined;
  const admitted = addresses.filter((address) => {
    const decision = admitAddress(policy, name, engine.classify(address), port);
    if (decision.verdict !== 'allow') refused ??= decision;
    return decision.verdict === 'allow';
  });
  if (admitted.length > 0) return admitted;
  throw new Denial(
    refused?.reason ?? 'address',
    `${name} is at ${addresses[0]}, which this sandbox may not reach`,
    refused?.rule,
  );
}
