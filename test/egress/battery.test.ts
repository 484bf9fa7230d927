import { describe, expect, it } from 'vitest';
import { addressKind } from '../../server/src/lib/address-kind.ts';
import { canonicalAddress } from '../../server/src/lib/canonical-address.ts';
import { openWorld } from '../../server/src/egress/testing/program.ts';
import { ATTACKS } from './battery.ts';

/** The battery on the carrier alone. */
describe('attempts to get out', () => {
  it.each(ATTACKS.map((attack) => [attack.title, attack] as const))(
    '%s is refused',
    async (_title, attack) => {
      const { egress, sandbox, names, connect } = openWorld({
        classify: (address) => ({ address, kind: addressKind(address), own: false }),
      });
      egress.policies.set(sandbox, attack.policies);
      if (attack.resolvesTo)
        names.set(
          attack.to.name!,
          attack.resolvesTo.map((address) => canonicalAddress(address)!),
        );
      const program = connect(attack.to);
      const error = await program.refused;
      expect(error).toMatchObject({ code: 'permission_denied', details: { reason: attack.reason } });
      expect(egress.attempts(sandbox)[0]).toMatchObject({
        verdict: 'denied',
        reason: attack.reason,
        bytesOut: 0,
        bytesIn: 0,
      });
      egress.close();
    },
  );
});
